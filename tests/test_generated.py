"""Files that are made from others are up to date."""

from __future__ import annotations

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
