"""A session in a Jupyter kernel, with rich results."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import re
import secrets
import sys
import time
from typing import Any

import zmq
from jupyter_client.session import Session as Messages

from lagent_actions.code.process import Backend, Limits, Process
from lagent_actions.code.session import GRACE, Outcome, Session, clipped, ended_text

__all__ = ["KernelSession"]

_START_SECONDS = 60
_LATE_SECONDS = 10
"""How long a kernel may take to begin with a cell."""
_LOOK_SECONDS = 0.25
"""How often it is looked whether the kernel still lives."""

_LARGEST_MESSAGE = 16 << 20
_MOST_IMAGES = 16

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


class KernelSession(Session):
    """A Jupyter kernel (ipykernel), spoken to over Unix sockets in its own folder.

    Args:
        limits, backend, directory: see :class:`Process`.
        most: how many characters of a result are kept.

    Raises:
        RuntimeError: the kernel does not start.
    """

    def __init__(self, limits: Limits, *, backend: Backend = "process", directory: str | None = None, most: int = 32768) -> None:
        self._most = most
        self._process = Process(
            [sys.executable, "-c", _KERNEL, "{directory}/kernel.json"], limits, backend=backend, directory=directory
        )
        folder = self._process.directory
        # The kernel waits for this file. Its key is in the folder that only our user can enter.
        ports = {f"{name}_port": port for port, name in enumerate(("shell", "iopub", "stdin", "control", "hb"), 1)}
        key = secrets.token_hex(16)
        connection = {"transport": "ipc", "ip": str(folder / "s"), "key": key, **ports}
        folder.joinpath("new.json").write_text(json.dumps({**connection, "signature_scheme": "hmac-sha256"}))
        folder.joinpath("new.json").rename(folder / "kernel.json")
        # Plain sockets, as the clients of jupyter_client leave an event loop behind in every thread.
        self._session = Messages(key=key.encode())
        self._context = zmq.Context()
        self._context.setsockopt(zmq.MAXMSGSIZE, _LARGEST_MESSAGE)
        self._shell, self._iopub = self._context.socket(zmq.DEALER), self._context.socket(zmq.SUB)
        self._iopub.subscribe(b"")
        for socket, name in ((self._shell, "shell"), (self._iopub, "iopub")):
            socket.connect(f"ipc://{folder}/s-{ports[f'{name}_port']}")
        if (outcome := self._wait_until_ready()) is not None:
            raise RuntimeError(f"the Jupyter kernel did not start: {outcome.error}")

    def execute(self, code: str, seconds: float) -> Outcome:
        outcome = Outcome()
        request = self._send("execute_request", {"code": code, "silent": False, "store_history": True, "allow_stdin": False})
        deadline, begun, interrupted = time.monotonic() + seconds + _LATE_SECONDS, False, False
        while True:
            try:
                message = self._receive(self._iopub, min(_LOOK_SECONDS, max(deadline - time.monotonic(), 0.01)))
            except Exception as error:  # the code has access to the sockets and can write anything to them
                return self._ended(outcome, f"it sent what is no message ({type(error).__name__})")
            if message is None and not self.alive:
                return self._ended(outcome, "it died")
            if message is not None and message["parent_header"].get("msg_id") == request:
                if not begun:  # not before, since a kernel that has not begun ignores the interrupt
                    begun, deadline = True, time.monotonic() + seconds
                if self._take(message, outcome):
                    break
            if time.monotonic() >= deadline:
                if interrupted:
                    return self._ended(outcome, f"it did not stop within {seconds:g} seconds, nor when it was interrupted")
                self.interrupt()
                interrupted, deadline = True, time.monotonic() + GRACE
        if self._asked_to_exit(request):
            return self._ended(outcome, "the code asked it to exit")
        if interrupted and outcome.error is not None:
            outcome.error = f"TimeoutError: the code did not end within {seconds:g} seconds and was interrupted\n{outcome.error}"
        return outcome

    def close(self) -> None:
        self._process.close()
        self._context.destroy(linger=0)

    def _send(self, kind: str, content: dict[str, Any]) -> str:
        """Send a request and give its id."""
        message = self._session.msg(kind, content)
        self._session.send(self._shell, message)
        return str(message["header"]["msg_id"])

    def _receive(self, socket: zmq.Socket[bytes], seconds: float) -> dict[str, Any] | None:
        """The next message; ``None`` if there is none within ``seconds``."""
        return self._session.recv(socket)[1] if socket.poll(int(seconds * 1000)) else None

    def _take(self, message: dict[str, Any], outcome: Outcome) -> bool:
        """Add what a message says; whether the cell has ended."""
        kind, content = message["msg_type"], message["content"]
        if kind == "status":
            return bool(content.get("execution_state") == "idle")
        if kind == "stream":
            self._add(outcome, str(content.get("text", "")))
        elif kind in ("execute_result", "display_data", "update_display_data"):
            data = content.get("data", {})
            if "image/png" in data and len(outcome.images) < _MOST_IMAGES:
                with contextlib.suppress(binascii.Error, TypeError, ValueError):
                    outcome.images.append(base64.b64decode(data["image/png"]))
            else:
                text = str(data.get("text/markdown") or data.get("text/plain") or "")
                if kind == "execute_result":
                    outcome.value = clipped(text, self._most)
                else:
                    self._add(outcome, f"{text}\n")
        elif kind == "error":
            outcome.error = clipped(_ANSI.sub("", "\n".join(map(str, content.get("traceback", [])))), self._most)
        return False

    def _asked_to_exit(self, request: str) -> bool:
        with contextlib.suppress(Exception):  # as above
            while (reply := self._receive(self._shell, _LOOK_SECONDS)) is not None:
                if reply["parent_header"].get("msg_id") == request:
                    return any(payload.get("source") == "ask_exit" for payload in reply["content"].get("payload", ()))
        return False

    def _add(self, outcome: Outcome, text: str) -> None:
        if len(outcome.text) <= self._most:
            outcome.text = clipped(outcome.text + text, self._most)

    def _wait_until_ready(self) -> Outcome | None:
        """Run nothing, asking anew until the channel of results is connected, which subscribers are not told."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if not self.alive:
                return self._ended(Outcome(), "it died")
            self._send("kernel_info_request", {})
            if self._receive(self._iopub, _LOOK_SECONDS) is not None:
                return None
        return self._ended(Outcome(), f"it did not answer within {_START_SECONDS} seconds")

    def _ended(self, outcome: Outcome, reason: str) -> Outcome:
        code = self._process.close()
        self.close()
        outcome.error, outcome.ended = ended_text(reason, code), True
        return outcome


_KERNEL = """
import os, sys, time
sys.path[0] = ""
from ipykernel.kernelapp import IPKernelApp
while not os.path.exists(sys.argv[1]):
    time.sleep(0.005)
IPKernelApp.launch_instance(["-f", sys.argv[1], "--HistoryManager.enabled=False", "--InteractiveShell.colors=nocolor"])
"""
"""Loads the kernel while the connection file is being written."""
