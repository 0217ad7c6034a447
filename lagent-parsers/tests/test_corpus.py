"""Texts in the shapes that models produce, each with the right reading.

The corpus is data: ``what`` names the case, ``parser`` is the ``output_format``, ``status``, ``content``, ``reasoning``, ``calls`` and
``value`` are what has to be read; what is left out is empty.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lagent.registry import create
from lagent.schema import to_data

CASES = [
    pytest.param(case, id=f"{file.stem}-{case['what']}")
    for file in sorted((Path(__file__).parent / "corpus").glob("*.json"))
    for case in json.loads(file.read_text(encoding="utf-8"))
]


def reading(parsed: Any) -> dict[str, Any]:
    """A result in the form of the corpus."""
    data = to_data(parsed)
    calls = [{key: value for key, value in call.items() if value is not None} for call in data["tool_calls"]]
    value = data["value"] and {key: value for key, value in data["value"].items() if value is not None}
    found = {"content": data["content"], "reasoning": data["reasoning"], "calls": calls, "value": value}
    return {key: value for key, value in found.items() if value} | {"status": data["status"]}


@pytest.mark.parametrize("case", CASES)
def test_the_text_is_read_as_it_is_meant(case: dict[str, Any]) -> None:
    parser = create("parsers", case["parser"] if isinstance(case["parser"], dict) else {"type": case["parser"]})
    expected = {key: value for key, value in case.items() if key not in ("what", "parser", "text")}
    whole = parser.parse_response(case["text"])
    assert reading(whole) == expected
    assert (whole.error is None) == (expected["status"] in ("ok", "repaired"))
    stream = parser.stream()
    for character in case["text"]:
        stream.feed(character)
        stream.partial()
    assert stream.finish() == whole


def test_there_are_enough_texts() -> None:
    assert len({case.values[0]["text"] for case in CASES}) >= 150  # type: ignore[index]
