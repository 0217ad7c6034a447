"""A local server that answers over a real socket exactly what a test says, faults included."""

from __future__ import annotations

import json
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from attrs import define, field

USAGE = {
    "prompt_tokens": 7,
    "completion_tokens": 3,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 1},
}


@define
class Request:
    """What the server received."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


@define
class Reply:
    """What the server does with a request: sends bytes, sleeps for a number of seconds, or does one of the things named below."""

    steps: list[Any]

    RESET = "reset"  # break the connection off as a crashed server does
    HANG = "hang"  # say nothing more until the client goes, or two minutes have passed


def http(status: int, body: bytes | str | dict[str, Any], **headers: str) -> Reply:
    data = json.dumps(body).encode() if isinstance(body, dict) else body.encode() if isinstance(body, str) else body
    known = {"content-type": "application/json", "content-length": str(len(data))}
    lines = {**known, **{name.replace("_", "-"): value for name, value in headers.items()}}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return Reply([f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + data])


def failure(status: int, message: str = "it failed", code: str | None = None, **headers: str) -> Reply:
    return http(status, {"error": {"message": message, "type": "x", "param": None, "code": code}}, **headers)


def answer(content: str | None = "Hello", **message: Any) -> Reply:
    reason = "tool_calls" if "tool_calls" in message else "stop"
    choice = {"index": 0, "finish_reason": reason, "message": {"role": "assistant", "content": content, **message}}
    return http(200, {"id": "chatcmpl-1", "object": "chat.completion", "choices": [choice], "usage": USAGE})


STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


def event(delta: dict[str, Any] | None = None, finish: str | None = None, **data: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return b"data: " + json.dumps({"id": "chatcmpl-1", "choices": choices, **data}).encode() + b"\n\n"


def stream(*steps: Any) -> Reply:
    return Reply([STREAM, *steps])


HELLO = (event({"role": "assistant", "content": ""}), event({"content": "Hel"}), event({"content": "lo"}))
END = (event({}, "stop"), event(usage=USAGE), b"data: [DONE]\n\n")


@define
class Server:
    """Answers requests with the replies of a script, the last one again and again; ``GET /models`` says whose server it is."""

    url: str
    script: list[Reply] = field(factory=lambda: [answer()])
    requests: list[Request] = field(factory=list)
    owned_by: str = "nobody"
    pages: dict[str, dict[str, Any]] = field(factory=dict)
    connections: list[Any] = field(factory=list)
    running: int = 0
    peak: int = 0
    gone: threading.Event = field(factory=threading.Event)
    lock: Any = field(factory=threading.Lock)

    def play(self, *replies: Reply) -> None:
        self.script[:] = replies

    def wait_for(self, count: int) -> None:
        """Wait until so many requests have come."""
        while len(self.requests) < count:
            time.sleep(0.01)

    def reply_to(self, request: Request) -> Reply:
        if request.path.endswith("/models"):
            return http(200, {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": self.owned_by}]})
        if request.method == "GET":
            return http(200, self.pages[request.path]) if request.path in self.pages else http(404, "not found")
        with self.lock:
            self.requests.append(request)
            return self.script.pop(0) if len(self.script) > 1 else self.script[0]

    def serve(self, connection: socket.socket) -> None:
        self.connections.append(connection.getpeername())
        reader = connection.makefile("rb")
        while (line := reader.readline()).strip():
            method, path, _ = line.decode().split()
            headers = {}
            while (line := reader.readline()).strip():
                name, _, value = line.decode().partition(":")
                headers[name.lower()] = value.strip()
            body = reader.read(int(headers.get("content-length", 0)))
            reply = self.reply_to(Request(method, path, headers, json.loads(body) if body else None))
            *working, last = reply.steps
            with self.lock:
                self.running += 1
                self.peak = max(self.peak, self.running)
            try:
                goes_on = self.perform(connection, working)
            finally:
                with self.lock:
                    self.running -= 1  # before the last step, upon which the client may ask again
            if not (goes_on and self.perform(connection, [last])):
                return
            if any(isinstance(step, bytes) and b"connection: close" in step for step in reply.steps):
                return

    def perform(self, connection: socket.socket, steps: list[Any]) -> bool:
        """Take steps of a reply; whether the connection goes on."""
        for step in steps:
            if isinstance(step, bytes):
                connection.sendall(step)
            elif isinstance(step, (int, float)):
                time.sleep(step)
            elif step == Reply.RESET:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return False
            else:
                connection.settimeout(120)
                if connection.recv(1) == b"":
                    self.gone.set()
                return False
        return True


@contextmanager
def serving() -> Iterator[Server]:
    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            try:
                found.serve(self.request)
            except ConnectionError:
                found.gone.set()

    class Listener(socketserver.ThreadingTCPServer):
        daemon_threads = True
        request_queue_size = 128

    with Listener(("127.0.0.1", 0), Handler) as listener:
        found = Server(f"http://127.0.0.1:{listener.server_address[1]}/v1")
        threading.Thread(target=listener.serve_forever, args=(0.01,), daemon=True).start()
        yield found
        listener.shutdown()
