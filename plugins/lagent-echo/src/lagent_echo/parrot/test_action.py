"""The action passes the conformance kit of lagent, and does what it says."""

import pytest

from lagent import registry
from lagent.testing import ActionTests
from lagent_echo.parrot.action import ParrotAction


class TestParrotAction(ActionTests):
    calls = ({"text": "hello"}, {"text": "漢字", "times": 3})
    failing_calls = ({"text": "hello", "times": 0}, {"text": "hello", "times": 101})

    @pytest.fixture
    def action(self) -> ParrotAction:
        return ParrotAction()


def test_repeats() -> None:
    assert ParrotAction().run("hello", 3) == "hello hello hello"


def test_is_found_by_name() -> None:
    assert registry.get("actions", "parrot") is ParrotAction
