"""Environments of their own for what a benchmark compares with, kept in the checkout's ``.cache`` between runs."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "peers"
UPSTREAM = "lagent==0.5.0rc3"


def python_with(*requirements: str) -> str:
    """The Python of an environment that has just these requirements; made at the first use, which takes a minute or two."""
    key = hashlib.sha256(" ".join([sys.version, *requirements]).encode()).hexdigest()[:12]
    folder = CACHE / key
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    if not (folder / "complete").exists():
        print(f"installing {', '.join(requirements)} into {folder} …", file=sys.stderr)
        venv.create(folder, with_pip=True, symlinks=sys.platform != "win32", clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *requirements], check=True, stdout=sys.stderr)
        (folder / "complete").touch()
    return str(python)
