"""The components pass the kits of their kinds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lagent.actions import ActionExecutor
from lagent.testing import ActionTests, HookTests
from lagent_actions.agents import ActionPreprocessor
from lagent_actions.code import (
    AsyncIPythonInteractive,
    IPythonInteractive,
    IPythonInterpreter,
    PythonInterpreter,
)


class CodeTests(ActionTests):
    action_class: Any

    @pytest.fixture
    def action(self, folders: Path) -> Iterator[Any]:
        action = self.action_class()
        yield action
        ActionExecutor(action).close()


class SessionTests(CodeTests):
    calls = ({"command": "print(6 * 7)"}, {"command": "```python\n'漢' * 3\n```"})
    failing_calls = ({"command": "1 / 0"}, {"command": "not python"})


class TestIPythonInteractive(SessionTests):
    action_class = IPythonInteractive


class TestAsyncIPythonInteractive(SessionTests):
    action_class = AsyncIPythonInteractive


class TestIPythonInterpreter(SessionTests):
    action_class = IPythonInterpreter


class TestPythonInterpreter(CodeTests):
    calls = ({"command": "def solution():\n    return 6 * 7"},)
    failing_calls = ({"command": "def solution():\n    return 1 / 0"}, {"command": "not python"})
    action_class = PythonInterpreter


class TestActionPreprocessor(HookTests):
    changes = refuses = True

    @pytest.fixture
    def hook(self) -> ActionPreprocessor:
        return ActionPreprocessor()
