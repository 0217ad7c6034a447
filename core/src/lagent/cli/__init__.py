"""The command ``lagent``: a frame for commands, which distributions register in the group ``lagent.commands``.

A command is a class that is made without arguments and has ``help``, a line of text; ``add_arguments(parser)``, which declares its
arguments to the given :class:`argparse.ArgumentParser`; and ``run(args) -> int``, which gives the exit code. It may have ``examples``,
command lines with what they do, for its help. An error of lagent becomes one line on standard error and the exit code 2, any other error
one line and 1; with ``--debug`` they are raised.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, Protocol

from lagent import registry
from lagent.discovery import CORE
from lagent.errors import ComponentLoadError, LagentError

__all__ = ["Command", "main"]


class Command(Protocol):
    """What a command has; ``examples``, a mapping of command lines and what they do, may be left out."""

    help: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...
    def run(self, args: argparse.Namespace) -> int: ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (:data:`sys.argv` by default) and give the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: print(f"lagent: {message}", file=sys.stderr)
            return _run(arguments)
    except LagentError as error:
        if debug:
            raise
        return _fail(str(error), 2)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of a pipe went away; nothing more may be written, at exit neither
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if debug:
            raise
        return _fail(f"unexpected {type(error).__name__}: {error} ('--debug' shows where)", 1)


def _fail(message: str, code: int) -> int:
    print("lagent:", " ".join(message.split()), file=sys.stderr)
    return code


def _run(arguments: list[str]) -> int:
    if importlib.util.find_spec("rich") is None:
        return _fail("the command line needs an extra: pip install 'lagent-core[cli]'", 2)
    wanted = next((argument for argument in arguments if not argument.startswith("-")), None)
    parser = _parser("lagent", "Agents as layers, from the command line.")
    parser.add_argument("--version", action="version", version=f"lagent {version(CORE)}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    examples: dict[str, str] = {}
    for name in registry.names("commands") if wanted is None else [wanted]:
        try:
            command = registry.create("commands", name)
        except ComponentLoadError as error:
            if wanted is not None:
                raise
            commands.add_parser(name, help=_plain(f"cannot be loaded: {error}"))
            continue
        own: Mapping[str, str] = getattr(command, "examples", {})
        examples.update(list(own.items())[: None if wanted else 1])
        sub = _parser(name, command.help, commands, _listing(own))
        command.add_arguments(sub)
        sub.set_defaults(run=command.run)
    parser.epilog = _listing(examples)
    args = parser.parse_args(arguments or ["--help"])
    return int(args.run(args) or 0)


def _parser(name: str, help_: str, commands: Any = None, epilog: str = "") -> argparse.ArgumentParser:
    options: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter, "epilog": epilog}
    parser: argparse.ArgumentParser = (
        argparse.ArgumentParser(name, description=help_, **options)
        if commands is None
        else commands.add_parser(name, help=_plain(help_), description=f"{help_[:1].upper()}{help_[1:]}.", **options)
    )
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show where an error comes from")
    return parser


def _plain(text: str) -> str:
    """``text`` for argparse, which formats help texts with ``%``."""
    return text.replace("%", "%%")


def _listing(examples: Mapping[str, str]) -> str:
    width = max(map(len, examples), default=0)
    return "\n".join(["examples:", *(f"  {line:<{width}}  {what}" for line, what in examples.items())]) if examples else ""
