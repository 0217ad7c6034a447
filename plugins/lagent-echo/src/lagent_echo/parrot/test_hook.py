"""The hook passes the conformance kit of lagent, and keeps what was said."""

import pytest

from lagent import registry
from lagent.agents import Agent
from lagent.testing import HookTests
from lagent_echo import EchoModel
from lagent_echo.parrot.hook import ParrotHook


class TestParrotHook(HookTests):
    @pytest.fixture
    def hook(self) -> ParrotHook:
        return ParrotHook()


def test_keeps_the_answers() -> None:
    hook = ParrotHook()
    agent = Agent(EchoModel(["One.", "Two."]), name="bird", hooks=hook)
    agent("Say one.", session_id="a")
    agent("Say two.", session_id="b")
    assert hook.heard == [("a", "bird", "One."), ("b", "bird", "Two.")]


def test_is_found_by_name() -> None:
    assert registry.get("hooks", "parrot") is ParrotHook
