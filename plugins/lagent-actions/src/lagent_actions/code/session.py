"""A session of code execution: a process that runs one piece of code after the other."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from attrs import define, field

from lagent_actions.code.process import Backend, Limits, Process

__all__ = ["GRACE", "LightSession", "Outcome", "Session", "clipped", "ended_text", "extract_code"]

_WORKER = Path(__file__).with_name("worker.py")
_LONGEST_ANSWER = 8 << 20
_START_SECONDS = 60
GRACE = 2.0
"""Seconds that interrupted code has to stop before its process is killed."""


@define
class Outcome:
    """What a piece of code gave.

    Attributes:
        text: what it printed.
        value: the value of its last expression, as text.
        error: the traceback, or what else went wrong; ``None`` if nothing did.
        images: PNG files.
        ended: the process has ended, so that its variables are gone.
    """

    text: str = ""
    value: str | None = None
    error: str | None = None
    images: list[bytes] = field(factory=list)
    ended: bool = False


class Session:
    """Code in a process of its own, piece by piece in one namespace.

    One thread at a time may use it, save for :meth:`interrupt` and :meth:`kill`, which end a call of another.
    """

    _process: Process

    @property
    def alive(self) -> bool:
        return self._process.alive

    def execute(self, code: str, seconds: float) -> Outcome:
        """Run a piece of code for at most ``seconds``; then it is interrupted and, if it goes on, killed."""
        raise NotImplementedError

    def interrupt(self) -> None:
        """Let the running code end with a ``KeyboardInterrupt``."""
        self._process.interrupt()

    def kill(self) -> None:
        """End the process, whatever it does."""
        self._process.close()

    def close(self) -> None:
        """End the process and let go of what is held for it."""
        raise NotImplementedError


class LightSession(Session):
    """Plain Python in a process that starts within a few hundredths of a second.

    Args:
        limits, backend, directory: see :class:`Process`.
        most: how many characters of a result are kept.
    """

    def __init__(self, limits: Limits, *, backend: Backend = "process", directory: str | None = None, most: int = 8192) -> None:
        self._most, self._number = most, 0
        requests, self._requests = os.pipe()
        self._responses, responses = os.pipe()
        self._output, output = os.pipe()
        try:
            self._process = Process(
                [sys.executable, str(_WORKER), str(requests), str(responses)],
                limits,
                backend=backend,
                descriptors=(requests, responses),
                output=output,
                directory=directory,
            )
        except BaseException:
            self._close_pipes()
            raise
        finally:
            for descriptor in (requests, responses, output):
                os.close(descriptor)
        os.set_blocking(self._output, False)
        started = _ready((self._responses,), select.POLLIN, time.monotonic() + _START_SECONDS)
        if not started or not os.read(self._responses, 1):
            self.close()
            raise RuntimeError("the interpreter did not start")

    def execute(self, code: str, seconds: float) -> Outcome:
        self._read_output(_Clipped(0))  # of threads that went on after the call before
        self._number += 1
        request = {"id": self._number, "code": code, "most": self._most}
        output, answer = _Clipped(self._most), b""
        deadline, interrupted = time.monotonic() + seconds, False
        try:
            self._send(json.dumps(request).encode() + b"\n", deadline)
            while True:
                ready = _ready((self._responses, self._output), select.POLLIN, deadline)
                if self._output in ready:
                    self._read_output(output)
                if self._responses in ready:
                    piece = os.read(self._responses, 1 << 16)
                    answer += piece
                    if not piece or len(answer) > _LONGEST_ANSWER:
                        return self._ended(output, "it broke off the connection")
                    if (result := self._result(answer)) is not None:
                        break
                    answer = answer[answer.rfind(b"\n") + 1 :]
                if time.monotonic() >= deadline:
                    if interrupted:
                        return self._ended(output, f"it did not stop within {seconds:g} seconds, nor when it was interrupted")
                    self.interrupt()
                    interrupted, deadline = True, time.monotonic() + GRACE
        except (OSError, TimeoutError):
            return self._ended(output, "it does not take code any more")
        self._read_output(output)
        error = result.get("error")
        if interrupted and error is not None:
            error = f"TimeoutError: the code did not end within {seconds:g} seconds and was interrupted\n{error}"
        value = result.get("value")
        return Outcome(
            clipped(str(output), self._most),
            None if value is None else clipped(str(value), self._most),
            None if error is None else str(error),
        )

    def close(self) -> None:
        self._process.close()
        self._close_pipes()

    def _close_pipes(self) -> None:
        pipes = self._requests, self._responses, self._output
        self._requests = self._responses = self._output = -1  # their numbers will belong to others
        for descriptor in pipes:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _send(self, data: bytes, deadline: float) -> None:
        os.set_blocking(self._requests, False)
        rest = memoryview(data)
        while rest:
            if not _ready((self._requests,), select.POLLOUT, deadline):
                raise TimeoutError
            rest = rest[os.write(self._requests, rest) :]

    def _result(self, answer: bytes) -> dict[str, Any] | None:
        """The answer to the current request, if it is there; the code can write into our pipe, so anything may be in it."""
        for line in answer.split(b"\n")[:-1]:
            with contextlib.suppress(ValueError, RecursionError):
                data = json.loads(line)
                if isinstance(data, dict) and data.get("id") == self._number:
                    return data
        return None

    def _read_output(self, output: _Clipped) -> None:
        with contextlib.suppress(BlockingIOError):
            for _ in range(64):  # code that prints without end is read for as long as it runs
                if not (piece := os.read(self._output, 1 << 16)):
                    return
                output.add(piece)

    def _ended(self, output: _Clipped, reason: str) -> Outcome:
        with contextlib.suppress(OSError):
            self._read_output(output)
        code = self._process.close()
        self._close_pipes()
        return Outcome(clipped(str(output), self._most), error=ended_text(reason, code), ended=True)


def _ready(descriptors: Iterable[int], event: int, deadline: float) -> set[int]:
    """Those of the file descriptors for which an event, or an end, comes before the deadline."""
    poll = select.poll()  # not select(), which takes no numbers above 1023
    for descriptor in descriptors:
        poll.register(descriptor, event)
    return {descriptor for descriptor, _ in poll.poll(max(deadline - time.monotonic(), 0) * 1000)}


def ended_text(reason: str, code: int | None) -> str:
    """Why a process has ended, for the model."""
    how = f" (signal {code - 128})" if code and code > 128 else f" (exit code {code})" if code else ""
    return f"the interpreter was ended{how}: {reason}. Its variables are gone; the next call starts a new one."


class _Clipped:
    """Bytes of which only the first are kept."""

    def __init__(self, most: int) -> None:
        self._data, self._most = bytearray(), 4 * most + 4  # of characters of up to four bytes

    def add(self, piece: bytes) -> None:
        self._data += piece[: max(self._most - len(self._data), 0)]

    def __str__(self) -> str:
        return self._data.decode(errors="replace")


def clipped(text: str, most: int) -> str:
    """The beginning of a text that is too long, with a note that there was more."""
    return text if len(text) <= most else f"{text[:most]}\n[… the output is cut after {most} characters]"


_FENCE = re.compile(r"```[^\n`]*\n(.*?)(?:```|\Z)", re.DOTALL)


def extract_code(text: str) -> str:
    """The code in what a model wrote: that of the first Markdown block, the ``code`` of a JSON object, or all of the text."""
    if match := _FENCE.search(text):
        return match[1]
    if text.lstrip().startswith("{"):
        with contextlib.suppress(ValueError, RecursionError):
            data = json.loads(text)
            if isinstance(data, dict) and isinstance(data.get("code"), str):
                return str(data["code"])
    if match := re.fullmatch(r"\s*`([^`]*)`\s*", text):
        return match[1]
    return text
