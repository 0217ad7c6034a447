"""From memory to model messages."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagent.agents import Agent
from lagent.agents.aggregator import DefaultAggregator, FewshotAggregator, TrimAggregator
from lagent.errors import ConfigurationError
from lagent.memory import Memory
from lagent.schema import ActionReturn, ActionStatusCode, AgentMessage, ParsedResponse, ToolCall
from lagent_echo import EchoModel

IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}


def aggregate(*messages: Any, aggregator: Any = None, system: Any = None) -> list[dict[str, Any]]:
    memory = Memory()
    memory.add([m if isinstance(m, AgentMessage) else AgentMessage(m) for m in messages])
    return (aggregator or DefaultAggregator()).aggregate(memory, "bot", None, system)


def bot(content: Any, *calls: ToolCall, visible: str | None = None) -> AgentMessage:
    formatted = ParsedResponse(content if visible is None else visible, tool_calls=list(calls)) if calls else None
    return AgentMessage(content, sender="bot", formatted=formatted)


def result(content: Any, id_: str | None) -> AgentMessage:
    return AgentMessage(content, sender="ActionExecutor", type="tool", extra_info={"tool_call_id": id_})


class TestRoles:
    def test_own_messages_are_the_assistants_and_all_others_the_users(self) -> None:
        assert aggregate("hi", bot("hello"), AgentMessage("and I", sender="critic")) == [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "hello"},
            {"role": "user", "content": "and I"},
        ]

    def test_consecutive_user_messages_become_one(self) -> None:
        assert aggregate("a", "b", [IMAGE], "c") == [
            {"role": "user", "content": [{"type": "text", "text": "a\nb"}, IMAGE, {"type": "text", "text": "c"}]}
        ]
        assert aggregate([IMAGE], [IMAGE])[0]["content"] == [IMAGE, IMAGE]

    def test_native_tool_calls_and_their_results(self) -> None:
        calls = ToolCall("add", {"a": 1}, "c1"), ToolCall("odd", "not json", "c2")
        assert aggregate("q", bot("", *calls), result("2", "c1"), result("bad", "c2")) == [
            {"role": "user", "content": "q"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
                    {"id": "c2", "type": "function", "function": {"name": "odd", "arguments": "not json"}},
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "2"},
            {"role": "tool", "tool_call_id": "c2", "content": "bad"},
        ]

    def test_calls_written_in_the_text_stay_there(self) -> None:
        message = bot("<call>add</call>", ToolCall("add", {}, "c1"), visible="")
        assert aggregate("q", message)[1] == {"role": "assistant", "content": "<call>add</call>"}

    def test_an_interrupted_call_gets_a_result_as_the_format_demands(self) -> None:
        messages = aggregate("q", bot("", ToolCall("add", {}, "c1"), ToolCall("add", {}, "c2")), result("1", "c1"), "never mind")
        assert [m["role"] for m in messages] == ["user", "assistant", "tool", "tool", "user"]
        assert messages[3]["tool_call_id"] == "c2"
        assert "interrupted" in messages[3]["content"]

    @pytest.mark.parametrize(
        ("content", "text"),
        [
            ({"a": "ü"}, '{"a": "ü"}'),
            (ActionReturn(result=[{"type": "text", "content": "x"}]), "x"),
            (ActionReturn(errmsg="no", state=ActionStatusCode.API_ERROR), "no"),
            (None, ""),
            (3, "3"),
        ],
    )
    def test_other_contents_become_text(self, content: Any, text: str) -> None:
        assert aggregate(AgentMessage(content))[0]["content"] == text

    def test_a_result_without_id(self) -> None:
        assert aggregate(AgentMessage("x", sender="e", type="tool"))[0] == {"role": "tool", "tool_call_id": None, "content": "x"}


class TestSystemPrompt:
    def test_forms(self) -> None:
        named = {"role": "system", "content": "tools", "name": "plugin"}
        assert aggregate(system="a") == [{"role": "system", "content": "a"}]
        assert aggregate(system={"role": "system", "content": "a"}) == [{"role": "system", "content": "a"}]
        assert aggregate(system=["a", {"role": "system", "content": "b"}]) == [{"role": "system", "content": "a\nb"}]
        assert aggregate(system=["a", named]) == [{"role": "system", "content": "a"}, named]
        assert aggregate(system="") == []

    @pytest.mark.parametrize("wrong", [3, {"role": "system"}, [{"content": "a"}], [3]])
    def test_what_is_none(self, wrong: Any) -> None:
        with pytest.raises(ConfigurationError, match="a system prompt is text"):
            aggregate(system=wrong)

    def test_few_shots_stand_behind_it(self) -> None:
        shots = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
        for given_ in (shots, [shots]):
            assert aggregate("q", aggregator=FewshotAggregator(given_), system="s") == [
                {"role": "system", "content": "s"},
                *shots,
                {"role": "user", "content": "q"},
            ]


_contents = st.text(max_size=5) | st.just([IMAGE])
_turns = st.lists(
    st.tuples(st.lists(_contents, min_size=1, max_size=2), st.integers(0, 2), st.booleans()), min_size=1, max_size=6
)


def turn(number: int, users: list[Any], calls: int, answered: bool) -> list[AgentMessage]:
    """What one turn adds to memory, up to the answer."""
    messages = [AgentMessage(content) for content in users]
    if calls:
        made = [ToolCall("t", {}, f"{number}-{i}") for i in range(calls)]
        messages.append(bot("", *made))
        messages += [result("r", call.id) for call in made[: None if answered else 1]]
        if not answered:
            messages.append(AgentMessage("stop"))
    return [*messages, bot(f"answer {number}")]


class TestIncrements:
    @given(_turns)
    def test_each_turn_extends_the_last_unchanged_and_equals_a_fresh_start(self, turns: Any) -> None:
        memory, aggregator, last = Memory(), DefaultAggregator(), []
        for number, (users, calls, answered) in enumerate(turns):
            new = turn(number, users, calls, answered)
            for message in new:
                memory.add(message)
                if message.sender != "bot":
                    aggregator.aggregate(memory, "bot", None, "s")  # as often as it is asked
            prompt = aggregator.aggregate(memory, "bot", None, "s")
            assert prompt[: len(last)] == last
            assert prompt == DefaultAggregator().aggregate(memory, "bot", None, "s")
            last = copy.deepcopy(prompt)

    @given(_turns, st.randoms(use_true_random=False))
    def test_changes_of_memory_are_followed(self, turns: Any, random: Any) -> None:
        memory, aggregator = Memory(), DefaultAggregator()
        for number, (users, calls, answered) in enumerate(turns):
            memory.begin()
            memory.add(turn(number, users, calls, answered))
            aggregator.aggregate(memory, "bot", None, "s")
            random.choice([memory.commit, memory.rollback])()
            if len(memory) and random.random() < 0.3:
                memory.delete(random.randrange(len(memory)))
            system = random.choice(["s", "t"])
            assert aggregator.aggregate(memory, "bot", None, system) == DefaultAggregator().aggregate(memory, "bot", None, system)

    def test_memory_is_not_touched_and_the_result_is_the_callers(self) -> None:
        memory, aggregator = Memory(), DefaultAggregator()
        memory.add(["a", AgentMessage([IMAGE])])
        before = copy.deepcopy(memory.save())
        prompt = aggregator.aggregate(memory, "bot")
        prompt.append({"role": "user", "content": "mine"})
        assert memory.save() == before
        assert aggregator.aggregate(memory, "bot") == prompt[:1]

    def test_a_model_that_changes_the_list_it_was_given_harms_no_later_turn(self) -> None:
        from lagent.llms import BaseLLM

        class Rude(BaseLLM):
            seen: list[int] = []

            def _complete(self, request: Any) -> str:
                self.seen.append(len(request.messages))
                request.messages.append({"role": "user", "content": "rude"})
                return "x"

        agent = Agent(Rude(), "s")
        for _ in range(3):
            agent("q")
        assert Rude.seen == [2, 4, 6]

    def test_work_follows_what_is_new(self) -> None:
        converted: list[int] = []

        class Counting(DefaultAggregator):
            def convert(self, message: Any, name: str, parser: Any) -> Any:
                converted.append(1)
                return super().convert(message, name, parser)

        agent = Agent(EchoModel(), aggregator=Counting())
        for _ in range(50):
            agent("q")
        assert len(converted) == 50 * 2 - 1

    def test_one_aggregator_may_serve_many_agents(self) -> None:
        aggregator = DefaultAggregator()
        one, two = Agent(EchoModel(), aggregator=aggregator, name="one"), Agent(EchoModel(), aggregator=aggregator, name="two")
        for _ in range(3):
            two(one("q"))
        assert [m["role"] for m in two.llm.requests[-1].messages] == ["user", "assistant"] * 2 + ["user"]

    def test_volatile_text_goes_last_and_is_not_remembered(self) -> None:
        class Clock(DefaultAggregator):
            time = 0

            def end(self) -> Any:
                self.time += 1
                return [{"role": "system", "content": f"It is {self.time}."}]

        agent = Agent(EchoModel(), aggregator=Clock())
        agent("a")
        agent("b")
        assert [m["content"] for m in agent.llm.requests[1].messages] == ["a", "It is 1.", "b", "It is 2."]

    def test_an_aggregator_in_the_style_of_lagent(self) -> None:
        class Own(DefaultAggregator):
            def __init__(self) -> None:
                pass

            def aggregate(
                self, messages: Memory, name: str, parser: Any = None, system_instruction: Any = None
            ) -> list[dict[str, Any]]:
                return [{"role": "user", "content": str(len(messages.get_memory()))}]

        assert Agent(EchoModel(), aggregator=Own())("q").content == "1"


class TestWindows:
    def test_recent_n_of_the_memory_is_honoured_without_breaking_up_tool_calls(self) -> None:
        memory = Memory(recent_n=3)
        memory.add(["q", bot("", ToolCall("t", {}, "1")), result("r", "1"), bot("a"), "next"])
        assert aggregate_of(memory) == ["a", "next"]

    def test_so_is_a_memory_that_chooses_by_itself(self) -> None:
        class Odd(Memory):
            def get_memory(self, *args: Any, **kwargs: Any) -> Any:
                return [m for m in self.memory if m.content != "secret"]

        memory = Odd()
        memory.add(["a", bot("secret"), "b"])
        assert aggregate_of(memory) == ["a\nb"]


def aggregate_of(memory: Memory, aggregator: Any = None) -> list[Any]:
    return [m["content"] for m in (aggregator or DefaultAggregator()).aggregate(memory, "bot")]


class TestTrimming:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({}, "needs max_messages"),
            ({"max_messages": 0}, "at least 1"),
            ({"max_tokens": -1}, "at least 1"),
            ({"max_tokens": 5, "keep": 0}, "keep"),
        ],
    )
    def test_limits_that_make_no_sense(self, arguments: Any, message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            TrimAggregator(**arguments)

    def test_by_messages(self) -> None:
        memory, aggregator, lengths = Memory(), TrimAggregator(max_messages=6), []
        for i in range(12):
            memory.add([f"q{i}"])
            prompt = aggregator.aggregate(memory, "bot", None, "s")
            memory.add(bot(f"a{i}"))
            lengths.append(len(prompt))
            assert prompt[0] == {"role": "system", "content": "s"}
            assert prompt[-1]["content"] == f"q{i}"
            assert len(prompt) <= 7
        assert max(lengths) == 6

    def test_a_limit_may_be_reached_but_not_passed(self) -> None:
        def places(aggregator: TrimAggregator, turns: int) -> list[str]:
            memory = Memory()
            memory.add([m for i in range(turns) for m in (AgentMessage(f"q{i}"), bot(f"a{i}"))])
            return [m["content"] for m in aggregator.aggregate(memory, "bot", None, "s")]

        assert places(TrimAggregator(max_messages=8), 4)[1] == "q0"
        assert places(TrimAggregator(max_messages=8), 5)[1:] == ["q3", "a3", "q4", "a4"]
        assert places(TrimAggregator(max_messages=8, keep=1), 5)[1] == "q1"
        tokens = {"count_tokens": lambda message: 10}
        assert places(TrimAggregator(max_tokens=90, **tokens), 4)[1] == "q0"
        assert places(TrimAggregator(max_tokens=90, keep=1, **tokens), 5)[1] == "q1"
        assert places(TrimAggregator(max_tokens=90, **tokens), 5)[1:] == ["q4", "a4"]

    def test_history_is_rewritten_once_in_a_while(self) -> None:
        memory, aggregator, rewritten, last = Memory(), TrimAggregator(max_tokens=400, count_tokens=lambda m: 10), 0, []
        for i in range(200):
            memory.add(f"q{i}")
            prompt = aggregator.aggregate(memory, "bot", None, "s")
            rewritten += prompt[: len(last)] != last
            last = prompt
            memory.add(bot(f"a{i}"))
            assert 10 * len(prompt) <= 400
        assert rewritten <= 200 / 9

    @given(_turns, st.integers(1, 12), st.integers(1, 60), st.floats(0.1, 1))
    def test_what_is_left_is_whole(self, turns: Any, max_messages: int, max_tokens: int, keep: float) -> None:
        memory = Memory()
        aggregator = TrimAggregator(max_messages, max_tokens, keep, count_tokens=lambda m: 2)
        for number, (users, calls, answered) in enumerate(turns):
            new = turn(number, users, calls, answered)
            memory.add(new[:-1])
            prompt = aggregator.aggregate(memory, "bot", None, "s")
            memory.add(new[-1])
            whole = DefaultAggregator().aggregate(memory, "bot", None, "s")[:-1]
            assert prompt[0] == {"role": "system", "content": "s"}
            assert prompt[1:] == whole[len(whole) - len(prompt) + 1 :]
            assert prompt[1]["role"] == "user"

    def test_the_newest_turn_stays_whatever_its_size(self) -> None:
        memory = Memory()
        memory.add(["old", bot("a"), "new " * 1000])
        assert aggregate_of(memory, TrimAggregator(max_tokens=10)) == ["new " * 1000]
        alone = Memory()
        alone.add("x" * 1000)
        assert aggregate_of(alone, TrimAggregator(max_tokens=10)) == ["x" * 1000]
