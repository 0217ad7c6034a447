"""Content parts of messages made from files."""

from __future__ import annotations

import base64
import mimetypes
import os
from pathlib import Path
from typing import Any

__all__ = ["file_part", "image_part"]


def image_part(image: str | os.PathLike[str], detail: str = "auto") -> dict[str, Any]:
    """The content part that shows an image to the model.

    Args:
        image: the path of an image file, whose bytes travel in the request, or a URL that the server fetches.
        detail: ``"low"``, ``"high"`` or ``"auto"``.
    """
    url = image if isinstance(image, str) and image.startswith(("http://", "https://", "data:")) else _data_url(Path(image))
    return {"type": "image_url", "image_url": {"url": url, "detail": detail}}


def file_part(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The content part that gives the model a file, such as a PDF document."""
    return {"type": "file", "file": {"filename": Path(path).name, "file_data": _data_url(Path(path))}}


def _data_url(path: Path) -> str:
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
