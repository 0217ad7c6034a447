"""Slides."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from attrs import define
from pptx import Presentation

from lagent.actions import BaseAction, JsonParser, tool_api
from lagent.schema import SessionId
from lagent_actions.twin import AsyncTwin

__all__ = ["PPT", "AsyncPPT"]

THEME_MAPPING: dict[str, dict[str, Any]] = {
    "Default": {"template": None, "title": "Title Slide", "single": "Title and Content", "two": "Two Content"}
}
"""By theme: the file to start from, and the names of its layouts for a title, for text, and for text with an image."""


@define
class _File:
    presentation: Any
    theme: dict[str, Any]
    location: Path


class PPT(BaseAction):
    """Makes slides with titles, bullet points and images.

    Args:
        theme_mapping: the themes; see :data:`THEME_MAPPING`.
        description, parser: see :class:`lagent.actions.BaseAction`.
        work_dir: the folder in which all files have to be that the model names; by default, the working directory.
    """

    def __init__(
        self,
        theme_mapping: dict[str, dict[str, Any]] | None = None,
        description: dict[str, Any] | None = None,
        parser: Any = JsonParser,
        *,
        work_dir: str = ".",
    ) -> None:
        super().__init__(description, parser)
        self.theme_mapping = theme_mapping or THEME_MAPPING
        self.work_dir = Path(work_dir).resolve()
        self._files: dict[SessionId | None, _File] = {}
        self._lock = threading.Lock()

    @tool_api(explode_return=True)
    def create_file(self, theme: str, abs_location: str, session_id: SessionId | None = None) -> dict[str, str]:
        """Begin a file of slides.

        Args:
            theme: the theme, 'Default'
            abs_location: where the file will be

        Returns:
            dict: how it went
                * status: the result
        """
        if theme not in self.theme_mapping:
            raise ValueError(f"there is no theme {theme!r}; there are {', '.join(self.theme_mapping)}")
        location = self._path(abs_location)
        if location.suffix != ".pptx":
            raise ValueError(f"the name of the file has to end in .pptx, not {location.name!r}")
        chosen = self.theme_mapping[theme]
        with self._lock:
            self._files[session_id] = _File(Presentation(chosen["template"]), chosen, location)
        return {"status": "created a ppt file."}

    @tool_api(explode_return=True)
    def add_first_page(self, title: str, subtitle: str, session_id: SessionId | None = None) -> dict[str, str]:
        """Add the first page.

        Args:
            title: the title
            subtitle: the subtitle

        Returns:
            dict: how it went
                * status: the result
        """
        slide = self._slide("title", session_id)
        slide.placeholders[0].text = title
        slide.placeholders[1].text = subtitle
        return {"status": "added page"}

    @tool_api(explode_return=True)
    def add_text_page(self, title: str, bullet_items: str, session_id: SessionId | None = None) -> dict[str, str]:
        """Add a page of text.

        Args:
            title: the title of the page
            bullet_items: the text; [SPAN] stands between several points

        Returns:
            dict: how it went
                * status: the result
        """
        slide = self._slide("single", session_id)
        slide.placeholders[0].text = title
        _write(slide.placeholders[1], bullet_items)
        return {"status": "added page"}

    @tool_api(explode_return=True)
    def add_text_image_page(
        self, title: str, bullet_items: str, image: str, session_id: SessionId | None = None
    ) -> dict[str, str]:
        """Add a page of text with an image beside it.

        Args:
            title: the title of the page
            bullet_items: the text; [SPAN] stands between several points
            image: the path of the image

        Returns:
            dict: how it went
                * status: the result
        """
        path = self._path(image)
        slide = self._slide("two", session_id)
        slide.placeholders[0].text = title
        _write(slide.placeholders[1], bullet_items)
        space = slide.placeholders[2]
        picture = slide.shapes.add_picture(str(path), space.left, space.top, width=space.width)
        if picture.height > space.height:
            picture.width, picture.height = int(picture.width * space.height / picture.height), space.height
        picture.top = space.top + (space.height - picture.height) // 2
        space.element.getparent().remove(space.element)  # it would show its hint behind the image
        return {"status": "added page"}

    @tool_api(explode_return=True)
    def submit_file(self, session_id: SessionId | None = None) -> dict[str, str]:
        """Write the file, when all pages are there. This has to be the last step.

        Returns:
            dict: how it went
                * status: the result
        """
        file = self._file(session_id)
        file.presentation.save(str(file.location))
        return {"status": f"submitted. view ppt at {file.location}"}

    def close_session(self, session_id: SessionId) -> None:
        """Forget the file of a session."""
        with self._lock:
            self._files.pop(session_id, None)

    def _file(self, session_id: SessionId | None) -> _File:
        with self._lock:
            if session_id not in self._files:
                raise ValueError("there is no file yet: call create_file first")
            return self._files[session_id]

    def _slide(self, layout: str, session_id: SessionId | None) -> Any:
        file = self._file(session_id)
        return file.presentation.slides.add_slide(file.presentation.slide_layouts.get_by_name(file.theme[layout]))

    def _path(self, name: str) -> Path:
        path = (self.work_dir / name).resolve()
        if not path.is_relative_to(self.work_dir):
            raise ValueError(f"{name!r} is outside of {self.work_dir}, where all files have to be")
        return path


def _write(placeholder: Any, items: str) -> None:
    first, *others = items.split("[SPAN]")
    frame = placeholder.text_frame
    frame.text = first.strip()
    for item in others:
        frame.add_paragraph().text = item.strip()


class AsyncPPT(AsyncTwin, PPT):
    __doc__ = PPT.__doc__
