"""Talking to an agent in a terminal: asking, showing what happens, saying what is waited for."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import IO, Any

from rich.console import Console

from lagent import flow
from lagent.schema import ActionReturn, ActionStatusCode, AgentMessage, AgentStatusCode, FunctionCall, SessionId, to_data

__all__ = ["Progress", "Transcript", "ask", "failure_of"]


def ask(
    agent: Any, question: str, session_id: SessionId, progress: Progress, show: Callable[[AgentMessage], None]
) -> list[AgentMessage]:
    """Put a question to an agent of any variant and ``show`` its messages as they come.

    Returns:
        The finished messages; the last one is the answer.
    """
    messages: list[AgentMessage] = []
    waited_for = "the model"
    stream: Any = flow.stream(flow.invoke(agent, question, blocking=False, session_id=session_id))
    with closing(stream):  # an exception, such as that of Ctrl-C, ends the call
        while True:
            with progress(waited_for):
                message = next(stream, None)
            if message is None:
                return messages
            if messages and message == messages[-1]:
                continue  # the answer of an agent's child is the agent's answer too
            show(message)
            if message.stream_state == AgentStatusCode.STREAM_ING:
                waited_for = ""  # its line is being written, and is not to be disturbed
                continue
            waited_for = message.content.name if isinstance(message.content, FunctionCall) else "the model"
            messages.append(message)


def failure_of(message: AgentMessage) -> str | None:
    """What went wrong in an action, if ``message`` is the result of one that failed."""
    result = message.formatted
    if message.type != "tool" or not isinstance(result, ActionReturn) or result.state == ActionStatusCode.SUCCESS:
        return None
    return f"the action {(message.extra_info or {}).get('name')!r} failed: {result.errmsg}"


class Progress:
    """Says on standard error what is waited for, once that takes more than two seconds, if a person watches.

    ``with progress("the model"): …`` is the wait; the object itself is a context that ends with the command.
    """

    def __init__(self, stream: IO[str] | None = None) -> None:
        self._stream = stream or sys.stderr
        self._lock = threading.Lock()
        self._what, self._since, self._shown = "", 0.0, False
        self._ended = threading.Event()

    def __enter__(self) -> Progress:
        if self._stream.isatty():
            threading.Thread(target=self._watch, name="lagent-progress", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    @contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        self._what, self._since = what, time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._what = ""
                if self._shown:
                    self._write("\r\x1b[K")
                    self._shown = False

    def _watch(self) -> None:
        while not self._ended.wait(0.5):
            with self._lock:
                if self._what and time.monotonic() - self._since >= 2:
                    # Dots rather than a line drawn anew: what is waited for may be writing progress of its own.
                    self._write("." if self._shown else f"Waiting for {self._what} ")
                    self._shown = True

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class Transcript:
    """Writes a conversation as it happens; in colours on a terminal."""

    def __init__(self, stream: IO[str] | None = None) -> None:
        self._console = Console(file=stream or sys.stdout)
        self._text = ""
        self._open = False

    def show(self, message: AgentMessage) -> None:
        """Write what is new in ``message``: reasoning and text as they grow, a tool call, or a tool's result."""
        if message.type == "tool":
            self._show_tool(message)
        else:
            self._show_text(message)

    def line(self, text: str, style: str | None = None) -> None:
        """Write one line."""
        self._out(f"{text}\n", style)

    def end(self) -> None:
        """End the line that is being written, if there is one."""
        if self._open:
            self._out("\n")
        self._text, self._open = "", False

    def _show_text(self, message: AgentMessage) -> None:
        text = message.content if isinstance(message.content, str) else str(to_data(message.content))
        growing = message.stream_state == AgentStatusCode.STREAM_ING
        reasoning = (message.extra_info or {}).get("reasoning") if growing else None
        if not text.startswith(self._text):  # an attempt that could not be parsed, and another
            self.end()
        if not self._open and (text or reasoning):
            self._out(f"{message.sender}: ", "bold")
            self._open = True
        self._out(reasoning or "", "dim")
        self._out(text[len(self._text) :])
        self._text = text
        if not growing:
            self.end()

    def _show_tool(self, message: AgentMessage) -> None:
        self.end()
        if isinstance(message.content, FunctionCall):
            return self.line(f"  → {message.content.name} {to_data(message.content.parameters)}", "cyan")
        return self.line(f"  ← {message.content}", "red" if failure_of(message) else "green")

    def _out(self, text: str, style: str | None = None) -> None:
        self._console.out(text, style=style, end="", highlight=False)
        self._console.file.flush()
