"""Servers in processes of their own, which never outlive ours."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from lagent.errors import EngineError, ModelConfigurationError, ModelError, ModelTimeoutError
from lagent_engines.process import SupervisedProcess

__all__ = ["ServerProcess", "Symptom"]

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@frozen
class Symptom:
    """What the log of a server shows when it fails for a known reason.

    Attributes:
        pattern: a regular expression; what it matches is quoted in the error.
        cure: what to do.
        error: the class of the error.
        passing: whether the next start may well succeed, so that it is tried.
        fatal: whether the server is of no use any more, though it runs.
    """

    pattern: str
    cure: str
    error: type[ModelError] = EngineError
    passing: bool = False
    fatal: bool = False


_STARTS = 3
"""How often a start is tried that fails for a passing reason."""


class ServerProcess:
    """A server that this process starts and owns.

    It ends when it is closed or garbage-collected, and when this process ends, in whatever way: a supervisor (see
    :mod:`lagent_engines.supervisor`) holds a pipe to this process and ends the server and its workers when the pipe closes. A process
    forked from this one may use the server, but does not own it. Every method may be called from any thread.

    Args:
        name: what errors call it.
        command: gives the command that starts it at a port.
        host, port: where it listens; without a port, a free one is chosen when it starts.
        environment: variables beside those of this process.
        health: the path that answers with status 200 once the server is ready.
        log: the file for its output; without it, a temporary one, which is kept where the server failed.
        start_timeout: seconds that it may take to be ready.
        symptoms: known reasons for which it fails; the first whose pattern is in its log is named.
    """

    def __init__(
        self,
        name: str,
        command: Callable[[int], Sequence[str]],
        *,
        host: str = "127.0.0.1",
        port: int | None = None,
        environment: Mapping[str, str] | None = None,
        health: str = "/health",
        log: str | os.PathLike[str] | None = None,
        start_timeout: float = 1800.0,
        symptoms: Sequence[Symptom] = (),
    ) -> None:
        self.name = name
        self.log = Path(log) if log is not None else None
        self._temporary_log = log is None
        self._command = command
        self._host, self._wanted_port, self._port = host, port, port
        self._environment = dict(environment or {})
        self._health = health
        self._start_timeout = start_timeout
        self._symptoms = symptoms
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._process: SupervisedProcess | None = None
        self._end: weakref.finalize[Any, Any] | None = None
        self._ready = False
        self._failure: Callable[[], ModelError] | None = None
        _servers.add(self)

    def __repr__(self) -> str:
        return f"ServerProcess({self.name!r}, url={self.url!r})"

    @property
    def url(self) -> str | None:
        """The root URL of the server, once it has a port."""
        host = "127.0.0.1" if self._host == "0.0.0.0" else self._host
        return f"http://{host}:{self._port}" if self._port is not None else None

    @property
    def pid(self) -> int | None:
        """The process id of the server while it runs."""
        process = self._process
        return process.pid if process is not None and process.exit_code() is None else None

    @property
    def running(self) -> bool:
        """Whether the server is ready and has not ended."""
        return self._ready and self.pid is not None

    def start(self) -> None:
        """Start the server, unless it runs, and wait until it is ready.

        Raises:
            ModelConfigurationError: the port is taken, or the server refused its command.
            ModelTimeoutError: it was not ready in time.
            EngineError: it ended by itself. This, and an error of the last start, is raised until :meth:`restart` or :meth:`close`.
        """
        with self._lock:
            if (error := self.failure()) is not None:
                raise error
            if self._process is None:
                self._launch()

    def failure(self, *, within: float = 0.0) -> ModelError | None:
        """What :meth:`start` raises without trying, if the server failed.

        Args:
            within: after a request has failed: seconds to wait for the end of the server, of which its connections may tell first.
        """
        deadline = time.monotonic() + within
        while self.running and time.monotonic() < deadline:
            time.sleep(0.02)
        with self._lock:
            if self._failure is None and self._process is not None:
                if (code := self._process.exit_code()) is not None:
                    self._ended("has ended by itself", code, "; restart() starts it again")
                elif within and (known := self._symptom(fatal=True)) is not None:
                    self._failed(EngineError, "can answer no more; restart() starts it again", RuntimeError(known[1]))
                    self._stop()
            return self._failure() if self._failure is not None else None

    def restart(self) -> None:
        """Stop the server, if it runs, and start it again, at the same port if that is free."""
        with self._lock:
            self._stop()
            self._failure = None
            self._launch()

    def close(self) -> None:
        """Stop the server. It may be started again."""
        self._closing.set()
        with self._lock:
            self._closing.clear()
            owned = self._process is None or self._process.owned
            self._stop()
            if self._temporary_log and self.log is not None and self._failure is None and owned:
                self.log.unlink(missing_ok=True)
                self.log = None
            self._failure = None

    def tail(self, lines: int = 20) -> str:
        """The last lines of the server's output."""
        return "\n".join(self._written().splitlines()[-lines:])

    # Starting and stopping

    def _launch(self) -> None:
        for left in reversed(range(_STARTS)):
            try:
                return self._launch_once()
            except ModelError:
                if not left or (known := self._symptom()) is None or not known[0].passing:
                    raise
                self._failure = None
        return None

    def _launch_once(self) -> None:
        self._port = self._free_port()
        if self.log is None:
            handle, name = tempfile.mkstemp(prefix=f"{self.name}-", suffix=".log")
            os.close(handle)
            self.log = Path(name)
        with self.log.open("wb") as output:
            try:
                process = SupervisedProcess(self._command(self._port), {**os.environ, **self._environment}, output)
            except OSError as error:
                raise self._failed(ModelConfigurationError, f"cannot be started: {error}", error) from error
        self._process = process
        self._end = weakref.finalize(self, _release, process, self.log if self._temporary_log else None)
        try:
            self._wait_until_ready(process)
        except BaseException:
            self._stop()
            raise
        self._ready = True

    def _wait_until_ready(self, process: SupervisedProcess) -> None:
        begin = time.monotonic()
        with _progress(f"{self.name} is starting") as show:
            while not self._answers():
                if (code := process.exit_code()) is not None:
                    raise self._ended("ended while it was starting", code)
                if (elapsed := time.monotonic() - begin) > self._start_timeout:
                    text = f"was not ready within {self._start_timeout:g} s; see start_timeout="
                    raise self._failed(ModelTimeoutError, text, TimeoutError(text))
                show(elapsed)
                if self._closing.wait(0.1):
                    raise EngineError(f"{self.name} was closed while it was starting")

    def _answers(self) -> bool:
        try:
            with _DIRECT.open(f"{self.url}{self._health}", timeout=5) as answer:
                return bool(answer.status == 200)
        except (OSError, http.client.HTTPException):
            return False

    def _free_port(self) -> int:
        wanted = self._wanted_port or 0
        for port in (wanted or self._port or 0, wanted):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((self._host, port))
                    return int(probe.getsockname()[1])
                except OSError as error:
                    refused = error
        raise ModelConfigurationError(
            f"{self.name} cannot listen at port {wanted} of {self._host}: {refused.strerror}. Choose another port, or none for a free one"
        ) from refused

    def _stop(self) -> None:
        self._ready = False
        if self._process is not None and self._end is not None:
            self._end.detach()
            self._process.stop()
        self._process = self._end = None

    # Failures

    def _ended(self, what: str, code: int, cure: str = "") -> ModelError:
        if code == -signal.SIGKILL:
            how = "killed by SIGKILL: by hand, or by the system because memory was short"
        else:
            how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        return self._failed(EngineError, f"{what}, {how}{cure}", subprocess.CalledProcessError(code, self.name))

    def _failed(self, kind: type[ModelError], what: str, cause: Exception) -> ModelError:
        """The error that says what happened; every start raises one like it until the next :meth:`restart` or :meth:`close`."""
        text = f"{self.name} {what}."
        if (known := self._symptom()) is not None:
            symptom, quote = known
            kind, text = symptom.error, f"{text} It wrote {quote!r}: {symptom.cure}."
        text = f"{text} The end of its log, {self.log}:\n{self.tail()}"

        def failure() -> ModelError:
            error = kind(text)
            error.__cause__ = cause
            return error

        self._failure = failure
        return failure()

    def _symptom(self, *, fatal: bool = False) -> tuple[Symptom, str] | None:
        """The known reason that the log shows, and the words that show it; only if it is ``fatal``, where that is asked."""
        written = self._written()
        symptoms = [symptom for symptom in self._symptoms if symptom.fatal or not fatal]
        found = ((symptom, re.search(symptom.pattern, written)) for symptom in symptoms)
        return next(((symptom, match[0].strip()) for symptom, match in found if match is not None), None)

    def _written(self) -> str:
        """What the server wrote last, without colours."""
        if self.log is None or not self.log.exists():
            return ""
        with self.log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 200_000))
            text = file.read().decode(errors="replace")
        return re.sub(r"\x1b\[[0-9;]*m", "", text)

    def _after_fork(self) -> None:
        self._lock, self._closing = threading.RLock(), threading.Event()


def _release(process: SupervisedProcess, log: Path | None) -> None:
    """Stop a server whose owner was garbage-collected, or whose interpreter ends; remove ``log`` if the server did not fail."""
    failed = process.exit_code() is not None
    process.stop()
    if log is not None and process.owned and not failed:
        log.unlink(missing_ok=True)


_servers: weakref.WeakSet[ServerProcess] = weakref.WeakSet()


def _after_fork() -> None:
    for server in tuple(_servers):
        server._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@contextlib.contextmanager
def _progress(what: str) -> Iterator[Callable[[float], None]]:
    """Gives a function that shows on a terminal, from the second second on, how long ``what`` has taken."""
    shown = 0

    def show(seconds: float) -> None:
        nonlocal shown
        if seconds >= max(2, shown + 1) and sys.stderr.isatty():
            shown = int(seconds)
            print(f"\r{what}: {shown} s", end="", file=sys.stderr, flush=True)

    try:
        yield show
    finally:
        if shown:
            print(file=sys.stderr)
