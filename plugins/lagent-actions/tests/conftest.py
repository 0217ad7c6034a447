"""What the tests of code execution share."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SECRET = "sk-very-secret-4711"


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where sessions make their folders. At the end, nothing is left there, and no process that knows the place."""
    path = Path(tempfile.mkdtemp(prefix="lt-"))  # a socket's path has to be short
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    yield path
    wait_until(lambda: not list(path.iterdir()) and not processes_of(path))
    path.rmdir()


def processes_of(path: Path) -> list[str]:
    """The processes that were started for sessions below ``path``."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if f"HOME={path}/".encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200])
            except OSError:
                continue
    return found


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Wait for something that happens in another process."""
    import time

    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
