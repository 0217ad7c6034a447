"""``lagent chat``: a conversation."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lagent.cli.config import load_agent
from lagent.cli.conversation import Progress, Transcript, ask
from lagent.errors import LagentError

__all__ = ["ChatCommand"]

_SESSION = "chat"
_HELP = """\
/reset   forget the conversation
/help    show this
Ctrl-C   stop the answer; what was asked and answered in that turn is forgotten
Ctrl-D   leave"""


class ChatCommand:
    """Reads questions and shows answers until the input ends; remembers what was said."""

    help = "talk with an agent"
    examples = {"lagent chat agent.toml": "talk with the agent of a file"}  # noqa: RUF012

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("config", nargs="?", help="the agent, a .toml, .yaml or .json file (default: one that can calculate)")

    def run(self, args: argparse.Namespace) -> int:
        transcript = Transcript()
        with Progress() as progress:
            with progress("the model to load"):
                agent = load_agent(args.config)
            read = _reader()
            if sys.stdin.isatty():
                transcript.line("Ctrl-D leaves, /help tells more.", "dim")
                # At the prompt Ctrl-C is a key, in an answer it stops that; a second one between the two must not end the program.
                signal.signal(signal.SIGINT, signal.SIG_IGN)
            while (line := read()) is not None:
                if not (line := line.strip()):
                    continue
                if line.startswith("/"):
                    _command(line, agent, transcript)
                else:
                    _turn(agent, line, transcript, progress)
        return 0


def _turn(agent: Any, line: str, transcript: Transcript, progress: Progress) -> None:
    """Show the answer to ``line``. An interrupted or failed turn leaves no trace in memory."""
    try:
        with _one_interrupt(), agent.atomic(_SESSION):
            ask(agent, line, _SESSION, progress, transcript.show)
    except KeyboardInterrupt:
        transcript.end()
        transcript.line("stopped", "dim")
    except LagentError as error:
        transcript.end()
        transcript.line(f"error: {error}", "red")


def _command(line: str, agent: Any, transcript: Transcript) -> None:
    if line == "/reset":
        agent.reset(_SESSION, recursive=True)
        transcript.line("The conversation is forgotten.", "dim")
    else:
        transcript.line(_HELP if line == "/help" else f"There is no command {line}.\n{_HELP}", "dim")


@contextmanager
def _one_interrupt() -> Iterator[None]:
    """Let the first Ctrl-C interrupt and ignore those that follow, so that none cuts off the clean-up after the first."""

    def interrupt(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _reader() -> Callable[[], str | None]:
    """What reads the next line, ``None`` at the end: with editing and history where a person types."""
    if not sys.stdin.isatty():
        return lambda: sys.stdin.readline() or None
    from prompt_toolkit import PromptSession  # here, as a chat that is read from a pipe does without
    from prompt_toolkit.history import FileHistory

    session: PromptSession[str] = PromptSession(history=FileHistory(Path("~/.lagent_history").expanduser()))

    def read() -> str | None:
        while True:
            try:
                return session.prompt("> ")
            except KeyboardInterrupt:  # drops the line
                continue
            except EOFError:
                return None

    return read
