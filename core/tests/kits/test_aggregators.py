"""The kit for aggregators: each broken one is caught by the test that is meant for it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from lagent.aggregators import DefaultAggregator
from lagent.memory import Memory
from lagent.prompts.parsers import StrParser
from lagent.schema import AgentMessage
from lagent.testing import AggregatorTests

Message = dict[str, Any]


class TestDefaultAggregator(AggregatorTests):
    @pytest.fixture
    def aggregator(self) -> DefaultAggregator:
        return DefaultAggregator()


class Broken(DefaultAggregator):
    """Changes what a correct aggregator gives by :meth:`spoil`."""

    def aggregate(
        self, messages: Memory, name: str, parser: StrParser | None = None, system_instruction: Any = None
    ) -> list[Message]:
        return self.spoil(super().aggregate(messages, name, parser, system_instruction), messages)

    def spoil(self, prompt: list[Message], memory: Memory) -> list[Message]:
        raise NotImplementedError


class GivesATuple(Broken):
    def spoil(self, prompt: list[Message], memory: Memory) -> Any:
        return tuple(prompt)


class NamesAnotherRole(Broken):
    def spoil(self, prompt: list[Message], memory: Memory) -> list[Message]:
        return [{**m, "role": "human"} if m["role"] == "user" else m for m in prompt]


class PutsSystemLast(Broken):
    def spoil(self, prompt: list[Message], memory: Memory) -> list[Message]:
        return [*prompt[1:], prompt[0]] if prompt else []


class SplitsUsers(Broken):
    def spoil(self, prompt: list[Message], memory: Memory) -> list[Message]:
        return [part for m in prompt for part in ([{"role": "user", "content": "From: user"}, m] if m["role"] == "user" else [m])]


class ForgetsResults(Broken):
    def spoil(self, prompt: list[Message], memory: Memory) -> list[Message]:
        return [m for m in prompt if m["role"] != "tool"]


class TakesOnlyText(DefaultAggregator):
    @staticmethod
    def aggregate_system_intruction(system_intruction: Any) -> list[Message]:
        if isinstance(system_intruction, dict):
            system_intruction = str(system_intruction)
        return DefaultAggregator.aggregate_system_intruction(system_intruction)


class TakesAnything(DefaultAggregator):
    @staticmethod
    def aggregate_system_intruction(system_intruction: Any) -> list[Message]:
        if not isinstance(system_intruction, (str, dict, list)):
            system_intruction = str(system_intruction)
        return DefaultAggregator.aggregate_system_intruction(system_intruction)


class DropsParts(DefaultAggregator):
    def convert(self, message: AgentMessage, name: str, parser: StrParser | None) -> list[Message]:
        content = message.content
        if isinstance(content, list):
            message = message.model_copy(update={"content": " ".join(part.get("text", "") for part in content)})
        return super().convert(message, name, parser)


class ForgetsTheNewest(Broken):
    def spoil(self, prompt: list[Message], memory: Memory) -> list[Message]:
        return prompt[:-1] if len(prompt) > 20 else prompt


class TakesEveryoneForTheAssistant(DefaultAggregator):
    def convert(self, message: AgentMessage, name: str, parser: StrParser | None) -> list[Message]:
        return super().convert(message, message.sender if message.sender != "user" else name, parser)


class PutsTheTimeFirst(DefaultAggregator):
    clock = itertools.count()

    def aggregate(
        self, messages: Memory, name: str, parser: StrParser | None = None, system_instruction: Any = None
    ) -> list[Message]:
        return super().aggregate(messages, name, parser, f"{system_instruction} It is {next(self.clock)} o'clock.")


class MarksTheNew(DefaultAggregator):
    """Treats what came with the last turn in another way than what was there."""

    def update(self, prompt: Any, memory: Memory) -> None:
        for place, message in enumerate(memory.memory[prompt.count :]):
            super()._extend(prompt, [message.model_copy(update={"content": f"{place}: {message.content}"})])


class IgnoresTheEpoch(DefaultAggregator):
    def view(self, messages: Memory, *args: Any) -> list[Message]:
        if kept := messages.derived.get(id(self)):
            messages.epoch = kept.epoch
        return super().view(messages, *args)


class KeepsTheFirstSystemPrompt(DefaultAggregator):
    first: Any = None

    def begin(self, parser: StrParser | None, system_instruction: Any) -> list[Message]:
        self.first = self.first or system_instruction
        return super().begin(parser, self.first)


class KeepsOnePrompt(DefaultAggregator):
    """Keeps what it made in itself rather than with the memory it made it of."""

    def __init__(self) -> None:
        self.made: list[Message] = []
        self.count = 0

    def aggregate(
        self, messages: Memory, name: str, parser: StrParser | None = None, system_instruction: Any = None
    ) -> list[Message]:
        self.made += [{"role": "user", "content": str(m.content)} for m in messages.memory[self.count :]]
        self.count = len(messages)
        return list(self.made)


class ChangesMemory(DefaultAggregator):
    def convert(self, message: AgentMessage, name: str, parser: StrParser | None) -> list[Message]:
        if isinstance(message.content, str):
            message.content = message.content.strip() + " "
        return super().convert(message, name, parser)


class GivesItsOwnList(DefaultAggregator):
    def aggregate(
        self, messages: Memory, name: str, parser: StrParser | None = None, system_instruction: Any = None
    ) -> list[Message]:
        self.made = getattr(self, "made", None) or super().aggregate(messages, name, parser, system_instruction)
        return self.made


class MakesEverythingAnew(DefaultAggregator):
    def aggregate(
        self, messages: Memory, name: str, parser: StrParser | None = None, system_instruction: Any = None
    ) -> list[Message]:
        messages.derived.clear()
        return super().aggregate(messages, name, parser, system_instruction)


BROKEN = [
    (GivesATuple, "test_nothing_said_yet"),
    (NamesAnotherRole, "test_form_of_messages"),
    (PutsSystemLast, "test_system_messages_come_first"),
    (SplitsUsers, "test_users_do_not_speak_twice_in_a_row"),
    (ForgetsResults, "test_every_call_has_its_result"),
    (TakesOnlyText, "test_forms_of_the_system_prompt"),
    (TakesAnything, "test_what_is_no_system_prompt_is_refused"),
    (DropsParts, "test_nothing_is_lost"),
    (ForgetsTheNewest, "test_the_newest_message_is_there"),
    (TakesEveryoneForTheAssistant, "test_own_messages_are_the_assistants"),
    (PutsTheTimeFirst, "test_messages_extend_those_of_the_last_turn"),
    (MarksTheNew, "test_same_as_from_the_beginning"),
    (IgnoresTheEpoch, "test_changed_memory_is_seen"),
    (KeepsTheFirstSystemPrompt, "test_changed_system_prompt_is_seen"),
    (KeepsOnePrompt, "test_memories_do_not_mix"),
    (ChangesMemory, "test_memory_is_not_changed"),
    (GivesItsOwnList, "test_list_belongs_to_the_caller"),
    (MakesEverythingAnew, "test_a_turn_does_not_cost_more_in_a_long_session"),
]


@pytest.mark.parametrize(("aggregator", "test"), BROKEN, ids=lambda value: getattr(value, "__name__", value))
def test_a_broken_aggregator_is_caught_by_the_test_meant_for_it(
    aggregator: type[DefaultAggregator], test: str, caught: Any
) -> None:
    assert caught(TestDefaultAggregator, test, aggregator, StrParser())


def test_every_test_of_the_kit_catches_something() -> None:
    assert {name for name in dir(AggregatorTests) if name.startswith("test_")} == {test for _, test in BROKEN}
