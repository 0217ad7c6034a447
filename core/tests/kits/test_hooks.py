"""The kit for hooks: correct hooks pass, and each broken one is caught by the test that is meant for it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from lagent.hooks import Hook
from lagent.testing import HookTests


class Counter(Hook):
    """Counts messages, one lock-free list entry each."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def before_agent(self, agent: Any, message: Any, session_id: Any) -> None:
        self.seen += [(session_id, one.content) for one in message]

    def after_action(self, executor: Any, message: Any, session_id: Any) -> None:
        self.seen.append((session_id, message.content))


class Shout(Hook):
    def after_agent(self, agent: Any, message: Any, session_id: Any) -> Any:
        return message.model_copy(update={"content": message.content.upper()})


class Guard(Hook):
    async def before_agent(self, agent: Any, message: Any, session_id: Any) -> None:
        if any("你" in str(one.content) or "{" in str(one.content) for one in message):
            raise PermissionError("not here")


class TestCounter(HookTests):
    @pytest.fixture
    def hook(self) -> Counter:
        return Counter()


class TestShout(HookTests):
    changes = True

    @pytest.fixture
    def hook(self) -> Shout:
        return Shout()


class TestGuard(HookTests):
    refuses = True

    @pytest.fixture
    def hook(self) -> Guard:
        return Guard()


# Broken hooks ------------------------------------------------------------------------------------------------------


class Misspelt:
    def before_agents(self, agent: Any, message: Any, session_id: Any) -> None: ...


class WorksOnce(Hook):
    used = False

    def before_agent(self, agent: Any, message: Any, session_id: Any) -> None:
        if self.used:
            raise RuntimeError("used up")
        self.used = True


class ChangesInPlace(Hook):
    def before_agent(self, agent: Any, message: Any, session_id: Any) -> None:
        message[0].content = f"{message[0].content}!"


class TakesContentForText(Hook):
    def before_agent(self, agent: Any, message: Any, session_id: Any) -> None:
        message[0].content.strip()


class WritesToMemory(Hook):
    def after_agent(self, agent: Any, message: Any, session_id: Any) -> None:
        agent.memory.get(session_id).memory[-1].extra_info = {"seen": True}


class TakesSessionsForNumbers(Hook):
    def before_agent(self, agent: Any, message: Any, session_id: Any) -> None:
        "%d" % session_id  # noqa: UP031


class KeepsTheMessageInAnAttribute(Hook):
    def after_agent(self, agent: Any, message: Any, session_id: Any) -> Any:
        self.message = message
        time.sleep(0.002)
        return self.message


class HidesErrors(Hook):
    def agent_error(self, agent: Any, error: Any, session_id: Any) -> None:
        error.args = ("something went wrong",)


class TakesResultsForTexts(Hook):
    def after_action(self, executor: Any, message: Any, session_id: Any) -> Any:
        message.content.result[0]["content"].strip()


BROKEN = [
    (Misspelt, "test_registration"),
    (Misspelt, "test_it_hears_of_an_event"),
    (WorksOnce, "test_in_every_variant"),
    (ChangesInPlace, "test_in_every_variant"),
    (TakesContentForText, "test_any_message"),
    (WritesToMemory, "test_memory_is_not_changed"),
    (TakesSessionsForNumbers, "test_sessions"),
    (KeepsTheMessageInAnAttribute, "test_concurrent_sessions"),
    (HidesErrors, "test_errors_pass_through"),
    (TakesResultsForTexts, "test_in_an_executor"),
]


@pytest.mark.parametrize(("hook", "test"), BROKEN, ids=lambda value: getattr(value, "__name__", value))
def test_a_broken_hook_is_caught_by_the_test_meant_for_it(hook: type, test: str, caught: Any) -> None:
    assert caught(TestCounter, test, hook)


def test_every_test_of_the_kit_catches_something() -> None:
    assert {name for name in dir(HookTests) if name.startswith("test_")} == {test for _, test in BROKEN}
