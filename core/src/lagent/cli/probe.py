"""Importing modules that are not trusted to import well, each in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from attrs import define, field

__all__ = ["Import", "import_all"]

_CODE = """
import importlib, json, os, sys, time
path, report, module, attributes = json.loads(sys.argv[1])
sys.path[:] = path
result = {"missing": []}
start = time.perf_counter()
try:
    found = importlib.import_module(module)
    result["seconds"] = time.perf_counter() - start
    for attribute in attributes:
        value = found
        try:
            for name in attribute.split("."):
                value = getattr(value, name)
        except AttributeError:
            result["missing"].append(attribute)
except BaseException as error:
    result["error"] = f"{type(error).__name__}: {error}"
    result["absent"] = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
with open(report, "w", encoding="utf-8") as file:
    json.dump(result, file)
sys.stdout.flush()
os._exit(0)
"""

_KEPT = 1000
"""How many bytes of a module's output are kept."""


@define
class Import:
    """How the import of a module went.

    Attributes:
        seconds: how long it took, if it succeeded.
        error: what went wrong, if it did not.
        absent: the module that was not found, if that was the error.
        missing: the attributes that the module lacks.
        output: the beginning of what it printed.
    """

    seconds: float | None = None
    error: str = ""
    absent: str | None = None
    missing: list[str] = field(factory=list)
    output: str = ""


def import_all(modules: Mapping[str, Sequence[str]], timeout: float) -> dict[str, Import]:
    """Import modules, with this program's :data:`sys.path`, and look for attributes of theirs.

    Args:
        modules: the attributes to look for, by the name of the module.
        timeout: seconds after which an import is given up, together with all processes that it started.
    """
    running: list[subprocess.Popen[bytes]] = []
    pool = ThreadPoolExecutor(min(8, os.cpu_count() or 1))
    try:
        imports = {name: pool.submit(_import, name, attributes, timeout, running) for name, attributes in modules.items()}
        return {name: done.result() for name, done in imports.items()}
    finally:  # on an interrupt there are processes left
        pool.shutdown(wait=False, cancel_futures=True)
        for process in running:
            _kill(process)


def _import(module: str, attributes: Sequence[str], timeout: float, running: list[subprocess.Popen[bytes]]) -> Import:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report")
        task = json.dumps([sys.path, str(report), module, list(attributes)])
        process = subprocess.Popen(
            [sys.executable, "-c", _CODE, task],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        running.append(process)
        kept = bytearray()
        reader = threading.Thread(target=_read, args=(process, kept), daemon=True)
        reader.start()
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            return Import(error=f"the import did not end within {timeout:g} s", output=_text(kept))
        finally:
            _kill(process)
            running.remove(process)
            reader.join(1)
        if report.exists():
            return Import(**json.loads(report.read_text(encoding="utf-8")), output=_text(kept))
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return Import(error=f"the process that imported it {how}", output=_text(kept))


def _read(process: subprocess.Popen[bytes], kept: bytearray) -> None:
    """Read all that the process prints, so that it is not held up, and keep the beginning."""
    assert process.stdout is not None
    with process.stdout as pipe:
        while piece := pipe.read1(1 << 16):  # type: ignore[attr-defined]  # a BufferedReader
            kept.extend(piece[: _KEPT - len(kept)])


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
    process.wait()


def _text(output: bytearray) -> str:
    return output.decode(errors="replace").strip()
