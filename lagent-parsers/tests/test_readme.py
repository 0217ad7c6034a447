"""The code in the README runs, block after block."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any


def test_the_blocks_of_the_readme_run() -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {"__name__": "readme"}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    assert len(blocks) == 5
