"""What stands in the place of a service that is no more."""

from __future__ import annotations

from typing import Any

from lagent.actions import BaseAction
from lagent_actions.web.engines import RetiredServiceError

__all__ = ["AsyncBINGMap", "BINGMap"]


class BINGMap(BaseAction):
    """Bing Maps, which is no more: making one raises :class:`RetiredServiceError`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RetiredServiceError(
            "Microsoft shut down Bing Maps for Enterprise (its free accounts on 30 June 2025): write an action for another service, "
            "such as OpenStreetMap's Nominatim for places and OSRM for routes"
        )


AsyncBINGMap = BINGMap
