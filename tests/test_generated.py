"""Files that are made from others are up to date."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_generated_files_are_current() -> None:
    """If this fails, run ``python scripts/generate.py``."""
    command = [sys.executable, ROOT / "scripts" / "generate.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_distribution_declares_its_plugin_api() -> None:
    for file in [*ROOT.glob("*/pyproject.toml"), *ROOT.glob("plugins/*/pyproject.toml")]:
        assert '[project.entry-points."lagent.plugin_api"]' in file.read_text(encoding="utf-8"), file


def test_uv_takes_our_own_distributions_from_the_workspace() -> None:
    files = [*ROOT.glob("*/pyproject.toml"), *ROOT.glob("plugins/*/pyproject.toml")]
    needed = {name for file in files for name in re.findall(r'"(lagent-[a-z]+)[\[>=]', file.read_text(encoding="utf-8"))}
    sources = set(
        re.findall(
            r"^(lagent-\w+) = \{ workspace = true \}$", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE
        )
    )
    assert needed <= sources
