"""The action ``parrot``."""

from __future__ import annotations

from lagent.actions import BaseAction, tool_api

__all__ = ["ParrotAction"]


class ParrotAction(BaseAction):
    """Repeat a text."""

    @tool_api
    def run(self, text: str, times: int = 2) -> str:
        """Repeat a text.

        Args:
            text: what to repeat.
            times: how often, at most a hundred times.
        """
        if not 0 < times <= 100:
            raise ValueError(f"times has to be between 1 and 100, not {times}")
        return " ".join([text] * times)
