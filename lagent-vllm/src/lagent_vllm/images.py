"""The images of a conversation, as vLLM takes them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

from lagent.errors import ModelConfigurationError
from lagent.llms import is_image

__all__ = ["Images"]


class Images:
    """Loads the images that content parts of OpenAI's form name: ``{"type": "image_url", "image_url": {"url": …}}``.

    A URL holds the image itself (``data:``), or says where it is: on the web or, below the engine argument
    ``allowed_local_media_path``, in a file (``file:``).

    Args:
        arguments: vLLM's engine arguments.
    """

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._arguments = arguments
        self._load = functools.lru_cache(maxsize=64)(self._fetch)  # a conversation shows its images again with every turn

    def of(self, messages: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]] | None:
        """The images of ``messages``, in order, as vLLM's ``multi_modal_data``.

        Raises:
            ModelConfigurationError: one cannot be loaded.
        """
        contents = (message.get("content") for message in messages)
        images = [
            self._load(_url(part)) for content in contents if isinstance(content, list) for part in content if is_image(part)
        ]
        return {"image": images} if images else None

    def _fetch(self, url: str) -> Any:
        from vllm.multimodal.media import MediaConnector  # type: ignore[import-not-found, unused-ignore]

        names = ("media_io_kwargs", "allowed_local_media_path", "allowed_media_domains")
        try:
            return MediaConnector(**{name: self._arguments[name] for name in names if name in self._arguments}).fetch_image(url)
        except Exception as error:  # of the network, of the file, of the decoder
            raise ModelConfigurationError(f"the image {url[:80]!r} cannot be loaded: {error}") from error


def _url(part: Mapping[str, Any]) -> str:
    url = part.get("image_url")
    url = url.get("url") if isinstance(url, Mapping) else url
    if not isinstance(url, str):
        raise ModelConfigurationError(
            f"an image has the form {{'type': 'image_url', 'image_url': {{'url': 'data:image/png;base64,…'}}}}, not {part!r:.200}"
        )
    return url
