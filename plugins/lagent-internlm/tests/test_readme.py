"""Every block of Python in the README runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

EXPECTED = "5050}."
README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    for number, block in enumerate(BLOCKS):
        exec(compile(block, f"README, block {number}", "exec"), {})
    assert EXPECTED in capsys.readouterr().out
