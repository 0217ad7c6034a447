"""The kit for aggregators."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, ClassVar

import pytest

from lagent.memory import Memory
from lagent.prompts.parsers import StrParser
from lagent.schema import AgentMessage, ParsedResponse, ToolCall
from lagent.testing.kit import Kit

__all__ = ["AggregatorTests"]

Message = dict[str, Any]

_NAME = "Agent"
_IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


class AggregatorTests(Kit):
    """What every aggregator has to do.

    Fixtures:
        aggregator: the aggregator.
        parser: the output parser that it is used with; one that takes the text as it is by default.

    Attributes:
        roles: the roles that its messages may have.
        rewrites_history: whether it leaves messages out or sums them up, so that what it gave before may change.
        volatile: how many messages at the end are made anew for every turn, such as the time.
        separate_users: whether several messages in a row may have the role ``user``.
    """

    roles: ClassVar[frozenset[str]] = frozenset({"system", "user", "assistant", "tool"})
    rewrites_history: ClassVar[bool] = False
    volatile: ClassVar[int] = 0
    separate_users: ClassVar[bool] = False

    @pytest.fixture
    def aggregator(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} needs a fixture 'aggregator' that returns the aggregator to test")

    @pytest.fixture
    def parser(self) -> Any:
        return StrParser()

    def aggregate(
        self, aggregator: Any, memory: Memory, parser: Any, system: Any = "Be brief.", name: str = _NAME
    ) -> list[Message]:
        messages: list[Message] = aggregator.aggregate(memory, name, parser, system)
        return messages

    def _turn_by_turn(self, aggregator: Any, parser: Any) -> Iterator[tuple[Memory, list[Message]]]:
        """A conversation with everything that may occur in one: after each of its messages, the memory and what was made of it."""
        memory = Memory()
        for message in self._conversation():
            memory.add(message)
            yield memory, self.aggregate(aggregator, memory, parser)

    def _conversation(self) -> list[AgentMessage]:
        calls = [ToolCall("search", {"query": "Paris"}, "call_1"), ToolCall("search", {"query": "Rome"}, "call_2")]
        formatted = ParsedResponse("Searching.", tool_calls=calls) if "tool" in self.roles else None
        return [
            AgentMessage("Hello! 🙂"),
            AgentMessage("Good morning!", sender=_NAME),
            AgentMessage([{"type": "text", "text": "What is this?"}, _IMAGE]),
            AgentMessage("And answer in French."),
            AgentMessage("", sender=_NAME),
            AgentMessage('Find "Paris"\nand "Rome".', sender="Other"),
            AgentMessage("Searching.", sender=_NAME, formatted=formatted),
            AgentMessage("A city.", sender="ActionExecutor", type="tool", extra_info={"tool_call_id": "call_1"}),
            AgentMessage("Another city.", sender="ActionExecutor", type="tool", extra_info={"tool_call_id": "call_2"}),
            AgentMessage("Both are cities.", sender=_NAME),
            AgentMessage("谢谢"),
            AgentMessage([{"type": "text", "text": "One more:"}, _IMAGE]),
        ]

    # Form

    def test_nothing_said_yet(self, aggregator: Any, parser: Any) -> None:
        for system in (None, "", "Be brief."):
            messages = self.aggregate(aggregator, Memory(), parser, system)
            assert isinstance(messages, list)
            assert ("Be brief." in _text(messages)) == (system == "Be brief.")

    def test_form_of_messages(self, aggregator: Any, parser: Any) -> None:
        for _, messages in self._turn_by_turn(aggregator, parser):
            for message in messages:
                assert message["role"] in self.roles, f"{message['role']!r} is none of the roles {sorted(self.roles)}"
                assert isinstance(message["content"], (str, list)) or message.get("tool_calls")
            json.dumps(messages)

    def test_system_messages_come_first(self, aggregator: Any, parser: Any) -> None:
        for _, messages in self._turn_by_turn(aggregator, parser):
            roles = [message["role"] for message in messages[: len(messages) - self.volatile]]
            assert roles[0] == "system"
            assert "system" not in roles[roles.count("system") :], "a system message stands within the conversation"

    def test_users_do_not_speak_twice_in_a_row(self, aggregator: Any, parser: Any) -> None:
        self.skip_unless(not self.separate_users, "separate_users is True")
        for _, messages in self._turn_by_turn(aggregator, parser):
            roles = [message["role"] for message in messages]
            assert ("user", "user") not in pairwise(roles), "user messages in a row were not merged"

    def test_every_call_has_its_result(self, aggregator: Any, parser: Any) -> None:
        self.skip_unless("tool" in self.roles, "it gives no messages of the role 'tool'")
        for memory, messages in self._turn_by_turn(aggregator, parser):
            if memory.memory[-1].sender == _NAME:
                continue  # the results are still to come
            open_calls: list[str] = []
            for message in messages:
                if message["role"] == "tool":
                    assert message["tool_call_id"] in open_calls, "a result has no call before it"
                    open_calls.remove(message["tool_call_id"])
                else:
                    assert not open_calls or memory.memory[-1].type == "tool", (
                        "a call is followed by something else than its result"
                    )
                    open_calls += [call["id"] for call in message.get("tool_calls", ())]

    @pytest.mark.parametrize(
        "system",
        ["Be brief.", {"role": "system", "content": "Be brief."}, [{"role": "system", "content": "Be brief."}]],
        ids=repr,
    )
    def test_forms_of_the_system_prompt(self, aggregator: Any, parser: Any, system: Any) -> None:
        memory = Memory()
        memory.add("Hello!")
        assert self.aggregate(aggregator, memory, parser, system) == self.aggregate(aggregator, memory, parser)

    def test_what_is_no_system_prompt_is_refused(self, aggregator: Any, parser: Any) -> None:
        for system in (42, ["Be", 42], {"content": "Be brief."}):
            with pytest.raises((TypeError, ValueError, KeyError)):
                self.aggregate(aggregator, Memory(), parser, system)

    # Contents

    def test_nothing_is_lost(self, aggregator: Any, parser: Any) -> None:
        self.skip_unless(not self.rewrites_history, "rewrites_history is True")
        for memory, messages in self._turn_by_turn(aggregator, parser):
            text = _text(messages)
            for message in memory.memory:
                for part in message.content if isinstance(message.content, list) else [message.content]:
                    said = part if isinstance(part, str) else part.get("text") or part["image_url"]["url"]
                    assert json.dumps(said, ensure_ascii=False)[1:-1] in text, f"{said!r} is not among the messages for the model"

    def test_the_newest_message_is_there(self, aggregator: Any, parser: Any) -> None:
        memory = Memory()
        for turn in range(30):
            memory.add([AgentMessage(f"Question {turn}?"), AgentMessage(f"Answer {turn}.", sender=_NAME)])
            memory.add(f"The latest question, {turn}?")
            assert f"The latest question, {turn}?" in _text(self.aggregate(aggregator, memory, parser))

    def test_own_messages_are_the_assistants(self, aggregator: Any, parser: Any) -> None:
        memory = Memory()
        memory.add(
            [AgentMessage("Hello!"), AgentMessage("Good morning!", sender=_NAME), AgentMessage("And you?", sender="Other")]
        )
        for name, own in ((_NAME, "Good morning!"), ("Other", "And you?")):
            messages = self.aggregate(aggregator, memory, parser, name=name)
            said = {str(message["content"]) for message in messages if message["role"] == "assistant"}
            assert own in said, f"the messages of {name!r} are not the assistant's when {name!r} asks"
            assert not ({"Hello!", "Good morning!", "And you?"} - {own}) & said, "others' messages have become the assistant's"

    # Stability

    def test_messages_extend_those_of_the_last_turn(self, aggregator: Any, parser: Any) -> None:
        self.skip_unless(not self.rewrites_history, "rewrites_history is True")
        memory = Memory()
        before: list[Message] = []
        for turn in range(12):
            memory.add(f"Question {turn}? 🙂")
            messages = self.aggregate(aggregator, memory, parser)
            assert messages[: len(before)] == before, "the messages of the last turn have changed, so no prefix cache can hit"
            before = copy.deepcopy(messages[: len(messages) - self.volatile])
            memory.add(AgentMessage(f"Answer {turn}.", sender=_NAME))

    def test_same_as_from_the_beginning(self, aggregator: Any, parser: Any) -> None:
        self.skip_unless(not self.rewrites_history, "rewrites_history is True")
        for memory, messages in self._turn_by_turn(aggregator, parser):
            fresh = Memory()
            fresh.load(memory.save())
            again = self.aggregate(aggregator, fresh, parser)
            assert messages[: len(messages) - self.volatile] == again[: len(again) - self.volatile], (
                "the messages made turn by turn differ from those made of the whole memory at once"
            )

    def test_changed_memory_is_seen(self, aggregator: Any, parser: Any) -> None:
        memory = Memory()
        memory.add([AgentMessage("Hello!"), AgentMessage("Good morning!", sender=_NAME), AgentMessage("How are you?")])
        assert "Good morning!" in _text(self.aggregate(aggregator, memory, parser))
        memory.delete([0, 1])
        assert "Good morning!" not in _text(self.aggregate(aggregator, memory, parser)), "a deleted message is still sent"
        memory.load([AgentMessage("Begin again.").model_dump()])
        text = _text(self.aggregate(aggregator, memory, parser))
        assert "Begin again." in text
        assert "How are you?" not in text, "a replaced message is still sent"

    def test_changed_system_prompt_is_seen(self, aggregator: Any, parser: Any) -> None:
        memory = Memory()
        memory.add("Hello!")
        self.aggregate(aggregator, memory, parser)
        text = _text(self.aggregate(aggregator, memory, parser, system="Be thorough."))
        assert "Be thorough." in text
        assert "Be brief." not in text

    def test_memories_do_not_mix(self, aggregator: Any, parser: Any) -> None:
        memories = [Memory(), Memory()]
        for turn in range(6):
            for number, memory in enumerate(memories):
                memory.add([AgentMessage(f"Question {turn} of {number}"), AgentMessage("Answer.", sender=_NAME)])
                assert f"of {1 - number}" not in _text(self.aggregate(aggregator, memory, parser)), "sessions are mixed up"

    # Care

    def test_memory_is_not_changed(self, aggregator: Any, parser: Any) -> None:
        memory = Memory()
        for message in self._conversation():
            memory.add(message)
            saved, epoch = memory.save(), memory.epoch
            self.aggregate(aggregator, memory, parser)
            assert (memory.save(), memory.epoch) == (saved, epoch), "aggregating has changed the memory"

    def test_list_belongs_to_the_caller(self, aggregator: Any, parser: Any) -> None:
        memory = Memory()
        memory.add("Hello!")
        first = self.aggregate(aggregator, memory, parser)
        expected = copy.deepcopy(first)
        first.append({"role": "user", "content": "added by the caller"})
        messages = self.aggregate(aggregator, memory, parser)
        kept = len(messages) - self.volatile
        assert messages[:kept] == expected[:kept], "what a caller added to its list is sent in the next turn"

    def test_a_turn_does_not_cost_more_in_a_long_session(self, aggregator: Any, parser: Any) -> None:
        def turn(count: int) -> Callable[[], Any]:
            memory = Memory()
            for number in range(count // 2):
                memory.add([AgentMessage(f"Question {number}?"), AgentMessage(f"Answer {number}.", sender=_NAME)])
            self.aggregate(aggregator, memory, parser)

            def run() -> float:
                memory.add([AgentMessage("Question?"), AgentMessage("Answer.", sender=_NAME)])
                start = time.thread_time()
                self.aggregate(aggregator, memory, parser)
                return time.thread_time() - start

            return run

        few, many = turn(40), turn(4_000)
        short, long = min(few() for _ in range(30)), float("inf")
        for _ in range(40):
            long = min(long, many())
            if long < 20 * short:
                return
        pytest.fail(f"a turn takes {long / short:.0f} times as long with 4,000 messages as with 40: it must not depend on them")


def _text(messages: list[Message]) -> str:
    return json.dumps(messages, ensure_ascii=False)
