"""Makes the environment of this checkout, ``.venv``: all that the two commands of the README need, with the standard library alone."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".venv"
BIN = FOLDER / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")

BUILD = ["hatchling>=1.27", "editables>=0.5"]
"""What building the distributions takes. Installed once, as pip would otherwise install it anew for each of them."""


def prepare(name: str, requirements: list[str]) -> None:
    """Make the environment, if need be, and install ``requirements``, unless that was done and no ``pyproject.toml`` changed since.

    Args:
        name: what the requirements are for, as each purpose is installed by itself.
        requirements: arguments of ``pip install``, with paths from the checkout.
    """
    projects = sorted([ROOT / "pyproject.toml", *ROOT.glob("*/pyproject.toml"), *ROOT.glob("plugins/*/pyproject.toml")])
    wanted = hashlib.sha256(b"".join([repr(requirements).encode(), *(file.read_bytes() for file in projects)])).hexdigest()
    stamp = FOLDER / f"installed-{name}"
    if PYTHON.exists() and stamp.exists() and stamp.read_text() == wanted:
        return
    if not PYTHON.exists():
        _make()
    _say("Installing into .venv ...")
    _pip(["--upgrade", "pip>=25.1", *BUILD])
    _pip(["--no-build-isolation", *requirements])
    stamp.write_text(wanted)


def run(*command: str | Path) -> int:
    """Run a command in the checkout and give its exit code; 130 after Ctrl-C."""
    try:
        return subprocess.call([str(part) for part in command], cwd=ROOT)
    except KeyboardInterrupt:
        return 130


def require_python() -> None:
    """Go on with a Python that is new enough, or end with a message that says what to install."""
    if tuple(sys.version_info) >= (3, 10):  # a tuple, as tools take the comparison with sys.version_info itself for decided
        return
    for minor in range(15, 9, -1):
        found = shutil.which(f"python3.{minor}")
        if found:
            os.execv(found, [found, *sys.argv])
    sys.exit(f"lagent needs Python 3.10 or newer, and this is {sys.version.split()[0]}: install one, for example python3.12")


def _make() -> None:
    version = "{}.{}".format(*sys.version_info)
    _say(f"Making the environment .venv with Python {version} ...")
    try:
        import ensurepip  # noqa: F401
    except ImportError:
        sys.exit(
            f"This Python cannot make environments: it lacks ensurepip. On Debian and Ubuntu: apt install python{version}-venv"
        )
    try:
        venv.create(FOLDER, clear=True, with_pip=True, symlinks=os.name != "nt")
    except (OSError, subprocess.CalledProcessError) as error:
        shutil.rmtree(FOLDER, ignore_errors=True)
        sys.exit(f"The environment {FOLDER} could not be made: {error}. On Debian and Ubuntu: apt install python{version}-venv")


def _pip(arguments: list[str]) -> None:
    """Run ``pip install`` and show in one line what it is doing; all it wrote, if it fails."""
    environment = {**os.environ, "PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONUNBUFFERED": "1"}
    command = [str(PYTHON), "-m", "pip", "install", "--progress-bar", "off", *arguments]
    watched = sys.stderr.isatty()
    output = []
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            output.append(line)
            if watched:
                print(f"\r\x1b[K  {line.strip()[:76]}", end="", file=sys.stderr, flush=True)
    if watched:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    if process.returncode:
        sys.exit(
            "".join(output) + "\nInstalling failed: see above; check the connection and the configuration of pip, then try again"
        )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
