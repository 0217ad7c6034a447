"""A process with its supervisor, which ends it when this process ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from lagent_engines import supervisor

__all__ = ["SupervisedProcess"]

_GRACE = 20.0
"""Seconds that the process, and then what it leaves behind, has to end by itself."""


class SupervisedProcess:
    """A running process, the leader of its process group. Every method may be called from any thread.

    A process forked from this one does not own it: there, it is taken to run, and not stopped.

    Args:
        command: what to run.
        environment: all its environment variables.
        output: the file for what it writes.

    Attributes:
        pid: its process id, which is the id of its process group as well.
        owned: whether this process started it.

    Raises:
        OSError: the system cannot run it.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], output: Any) -> None:
        self.owned = True
        self._lock = threading.Lock()
        self._exit_code: int | None = None
        self._supervisor = subprocess.Popen(
            [sys.executable, "-I", "-S", supervisor.__file__, str(_GRACE), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            env=environment,
            bufsize=0,
            start_new_session=True,
        )
        assert self._supervisor.stdin is not None
        assert self._supervisor.stdout is not None
        self._pipe, self._reports = self._supervisor.stdin, self._supervisor.stdout
        first = json.loads(self._reports.readline() or '{"error": "its supervisor has ended"}')
        self.pid: int = first.get("pid", 0)
        if not self.pid:
            self.stop()
            raise OSError(first["error"])
        os.set_blocking(self._reports.fileno(), False)
        _running.add(self)

    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; ``None`` while it runs, as far as this process can know."""
        with self._lock:
            if self._exit_code is None and not self._reports.closed:
                try:
                    line = os.read(self._reports.fileno(), 4096)
                except BlockingIOError:
                    return None
                if not line:  # the supervisor was killed: its work falls to us
                    self._kill()
                self._exit_code = json.loads(line)["ended"] if line else -signal.SIGKILL
            return self._exit_code

    def stop(self) -> None:
        """End it, and wait until nothing is left of its process group."""
        if not self.owned:
            return
        self._pipe.close()
        try:
            self._supervisor.wait(3 * _GRACE + 5)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()
            self._supervisor.wait()
        if self._supervisor.returncode:
            self._kill()
        with self._lock:
            self._reports.close()

    def _kill(self) -> None:
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def _after_fork(self) -> None:
        self.owned, self._lock = False, threading.Lock()
        self._supervisor.returncode = 0  # it is no child of the forked process
        self._pipe.close()  # or the forked process would keep it open
        self._reports.close()


_running: weakref.WeakSet[SupervisedProcess] = weakref.WeakSet()


def _after_fork() -> None:
    for process in tuple(_running):
        process._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
