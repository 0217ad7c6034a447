"""The command line, run in this process."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest

from lagent.cli import main

Lagent = Callable[..., tuple[int, str, str]]


@pytest.fixture
def lagent(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Lagent:
    """Runs ``lagent`` with arguments and gives its exit code and what it wrote to standard output and error."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # the command line sets it

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        output = capsys.readouterr()
        return code, output.out, output.err

    return run
