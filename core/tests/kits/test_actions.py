"""The kit for actions: correct actions pass, and each broken one is caught by the test that is meant for it."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

from lagent.actions import BaseAction, tool_api
from lagent.schema import ActionReturn, ActionStatusCode
from lagent.testing import ActionTests


class Repeat(BaseAction):
    """Repeat a text."""

    def run(self, text: str, times: int = 2) -> str:
        """Repeat a text.

        Args:
            text: the text.
            times: how often.
        """
        if times < 0:
            raise ValueError("times must not be negative")
        time.sleep(times // 1_000)
        return text * times


class Texts(BaseAction):
    """Work on texts."""

    @tool_api
    async def join(self, texts: list[str]) -> str:
        """Join texts.

        Args:
            texts: the texts.
        """
        return "".join(texts)

    @tool_api
    def count(self, text: str) -> dict[str, int]:
        """Count the characters of a text.

        Args:
            text: the text.
        """
        return {"characters": len(text)}


class TestRepeat(ActionTests):
    calls = ({"text": "漢"}, {"text": "a", "times": 3})
    failing_calls = ({"text": "a", "times": -1},)
    slow_call = {"text": "", "times": 1_000}

    @pytest.fixture
    def action(self) -> BaseAction:
        return Repeat()


class TestTexts(ActionTests):
    calls = (("join", {"texts": ["a", "b"]}), ("count", {"text": "abc"}))

    @pytest.fixture
    def action(self) -> BaseAction:
        return Texts()


# Broken actions ----------------------------------------------------------------------------------------------------


class Undocumented(BaseAction):
    """Repeat a text."""

    def run(self, text: str, times: int = 2) -> str:
        return text * times


class WithItsOwnSchema(Repeat):
    def schema(self, api: str = "run") -> Any:
        return {**super().schema(api), "required": ["text", "count"]}


class Fails(Repeat):
    def run(self, text: str, times: int = 2) -> Any:
        raise RuntimeError("out of order")


class HidesFailures(Repeat):
    def run(self, text: str, times: int = 2) -> Any:
        return text * times if times >= 0 else "error: times must not be negative"


class FailsWithoutAWord(Repeat):
    def run(self, text: str, times: int = 2) -> Any:
        return ActionReturn(state=ActionStatusCode.API_ERROR) if times < 0 else text * times


class Counts(Repeat):
    numbers = itertools.count()

    def run(self, text: str, times: int = 2) -> Any:
        return f"{next(self.numbers)}: {text * times}"


class Remembers(Repeat):
    """Keeps the arguments in an attribute while it waits."""

    def run(self, text: str, times: int = 2) -> Any:
        self.arguments = text, times
        time.sleep(0.01)
        text, times = self.arguments
        return text * times


class Called(Repeat):
    """Overrides the call, by :meth:`answer`."""

    def __call__(self, inputs: Any, name: str = "run", session_id: Any = None) -> Any:
        return self.answer(inputs, name)

    def answer(self, inputs: Any, name: str) -> Any:
        raise NotImplementedError


class TakesOnlyDicts(Called):
    def answer(self, inputs: Any, name: str) -> Any:
        return super(Called, self).__call__(inputs if isinstance(inputs, dict) else {}, name)


class ChangesItsArguments(Called):
    def answer(self, inputs: Any, name: str) -> Any:
        inputs.setdefault("times", 2)
        return super(Called, self).__call__(inputs, name)


class FillsInWhatIsMissing(Called):
    def answer(self, inputs: Any, name: str) -> Any:
        return super(Called, self).__call__({"text": "", **inputs}, name)


class DropsTheUnknown(Called):
    def answer(self, inputs: Any, name: str) -> Any:
        return super(Called, self).__call__({key: inputs[key] for key in inputs.keys() & {"text", "times"}}, name)


class TakesAnyType(Called):
    def answer(self, inputs: Any, name: str) -> Any:
        text, times = inputs["text"], inputs.get("times", 2)
        return ActionReturn(inputs, type=self.name, result=[{"type": "text", "content": f"{text}{times}"}])


class TakesAnyApi(Called):
    def answer(self, inputs: Any, name: str) -> Any:
        return super(Called, self).__call__(inputs, "run")


class Raises(Called):
    def answer(self, inputs: Any, name: str) -> Any:
        return super(Called, self).__call__({**inputs}, name)


class IgnoresItsTimeLimit(Called):
    def answer(self, inputs: Any, name: str) -> Any:
        self.timeout = None
        return super(Called, self).__call__(inputs, name)


class NeedsANumberAsSession(Repeat):
    def run(self, text: str, times: int = 2, session_id: Any = 0) -> str:
        return text * times + " " * int(session_id)


class ClosesOnce(Repeat):
    closed = False

    def close(self) -> None:
        if self.closed:
            raise RuntimeError("closed already")
        self.closed = True


BROKEN = [
    (Undocumented, "test_description"),
    (WithItsOwnSchema, "test_schema"),
    (Fails, "test_calls"),
    (TakesOnlyDicts, "test_arguments_as_text"),
    (HidesFailures, "test_failures_are_reported"),
    (FailsWithoutAWord, "test_failures_are_reported"),
    (ChangesItsArguments, "test_arguments_are_not_changed"),
    (Counts, "test_same_call_gives_the_same"),
    (FillsInWhatIsMissing, "test_missing_arguments_are_refused"),
    (DropsTheUnknown, "test_unknown_arguments_are_refused"),
    (TakesAnyType, "test_wrong_types_are_refused"),
    (TakesAnyApi, "test_unknown_api_is_refused"),
    (Raises, "test_nothing_that_a_model_writes_raises"),
    (IgnoresItsTimeLimit, "test_time_limit"),
    (Remembers, "test_concurrent_calls"),
    (NeedsANumberAsSession, "test_in_an_executor"),
    (ClosesOnce, "test_closing"),
]


@pytest.mark.parametrize(("action", "test"), BROKEN, ids=lambda value: getattr(value, "__name__", value))
def test_a_broken_action_is_caught_by_the_test_meant_for_it(action: type[BaseAction], test: str, caught: Any) -> None:
    assert caught(TestRepeat, test, action)


def test_every_test_of_the_kit_catches_something() -> None:
    assert {name for name in dir(ActionTests) if name.startswith("test_")} == {test for _, test in BROKEN}
