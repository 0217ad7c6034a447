"""The Python code of the README."""

from __future__ import annotations

import re
from pathlib import Path


def blocks() -> list[str]:
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)
