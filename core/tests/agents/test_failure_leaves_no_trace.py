"""An exception, a cancellation or an early close, at any point of a call and in any variant, leaves everything as it was."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lagent.hooks import Hook
from lagent.llms import AsyncBaseLLM, BaseLLM
from lagent.memory import Memory
from lagent.prompts.parsers import ParserStream, StrParser
from lagent.schema import AgentStatusCode, ModelChunk

POINTS = (
    "before hook",
    "memory",
    "aggregator",
    "before model",
    "first token",
    "middle token",
    "last token",
    "parser",
    "after hook",
    "commit",
)
WORDS = ("one ", "two ", "three")


class Fault(Exception):
    pass


class Bomb:
    """Goes off once, at one point of a call."""

    def __init__(self) -> None:
        self.point = ""
        self.kind: type[BaseException] = Fault
        self.tokens_seen = 0

    def reach(self, point: str) -> None:
        if point == self.point:
            self.point = ""
            raise self.kind(point)


class FaultyHook(Hook):
    blocking = False

    def __init__(self, bomb: Bomb) -> None:
        self.bomb = bomb

    def before_agent(self, agent: Any, message: Any, session_id: Any) -> None:
        self.bomb.reach("before hook")

    def before_model(self, agent: Any, messages: Any, session_id: Any) -> None:
        self.bomb.reach("before model")

    def after_agent(self, agent: Any, message: Any, session_id: Any) -> None:
        self.bomb.reach("after hook")


class FaultyParser(StrParser):
    def __init__(self, bomb: Bomb) -> None:
        super().__init__()
        self.bomb = bomb

    def parse_response(self, data: str) -> Any:
        self.bomb.reach("parser")
        return data

    def stream(self) -> ParserStream:
        class AtTheEnd(ParserStream):
            def partial(self) -> None:
                return None

        return AtTheEnd(self)


def pieces(bomb: Bomb) -> Any:
    for point, word in zip(("first token", "middle token", "last token"), WORDS, strict=True):
        bomb.reach(point)
        yield ModelChunk(word)


def build(variant: Any) -> tuple[Any, Bomb]:
    bomb = Bomb()

    class FaultyMemory(Memory):
        def add(self, memories: Any) -> None:
            super().add(memories)
            bomb.reach("memory")

        def commit(self) -> None:
            bomb.reach("commit")
            super().commit()

    class Model(BaseLLM):
        def _stream(self, request: Any) -> Any:
            return pieces(bomb)

    class AsyncModel(AsyncBaseLLM):
        async def _stream(self, request: Any) -> Any:
            for piece in pieces(bomb):
                await asyncio.sleep(0)
                yield piece

    from lagent.aggregators import DefaultAggregator

    class Aggregator(DefaultAggregator):
        def begin(self, parser: Any, system_instruction: Any) -> Any:
            bomb.reach("aggregator")
            return super().begin(parser, system_instruction)

    agent = variant.cls("Agent")(
        (AsyncModel if variant.asynchronous else Model)(),
        memory=FaultyMemory,
        output_format=FaultyParser(bomb),
        on_parse_error="raise",
        aggregator=Aggregator(),
        hooks=[FaultyHook(bomb)],
    )
    return agent, bomb


def snapshot(agent: Any) -> Any:
    return agent.state_dict("s"), agent.memory.get_memory("s"), dict(agent._sessions._running)


@pytest.mark.parametrize("earlier", [0, 2], ids=["new session", "old session"])
@pytest.mark.parametrize("kind", [Fault, KeyboardInterrupt, asyncio.CancelledError])
@pytest.mark.parametrize("point", POINTS)
def test_an_exception(variant: Any, point: str, kind: type[BaseException], earlier: int) -> None:
    agent, bomb = build(variant)
    for _ in range(earlier):
        variant.call(agent, "before", session_id="s")
    if point == "aggregator":
        agent.aggregator = type(agent.aggregator)()  # one that has nothing yet
    before = snapshot(agent)
    bomb.point, bomb.kind = point, kind
    with pytest.raises(BaseException) as caught:
        variant.call(agent, "in vain", session_id="s")
    assert isinstance(caught.value, (kind, Exception))
    assert bomb.point == "", "the call never came to this point"
    assert snapshot(agent) == before
    assert variant.call(agent, "after", session_id="s").content == "one two three"
    assert [m.content for m in agent.memory.get_memory("s")][-2:] == ["after", "one two three"]
    assert len(agent.memory.get_memory("s")) == 2 * earlier + 2


@pytest.mark.parametrize("steps", range(12))
def test_a_cancellation(variants: list[Any], steps: int) -> None:
    for variant in variants:
        if not variant.asynchronous:
            continue
        agent, _ = build(variant)

        async def main(agent: Any = agent, variant: Any = variant) -> bool:
            await variant.aemitted(agent, "before", session_id="s")
            before = snapshot(agent)
            task = asyncio.ensure_future(variant.aemitted(agent, "in vain", session_id="s"))
            for _ in range(steps):
                await asyncio.sleep(0)
            cancelled = task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if cancelled and task.cancelled():
                assert snapshot(agent) == before
            assert (await variant.aemitted(agent, "after", session_id="s"))[-1].content == "one two three"
            return task.cancelled()

        was_cancelled = asyncio.run(main())
        assert was_cancelled or steps > 3


@pytest.mark.parametrize("taken", [1, 2, 3])
@pytest.mark.parametrize("on_close", ["discard", "keep"])
def test_an_early_close(variants: list[Any], taken: int, on_close: str) -> None:
    for variant in variants[2:]:
        agent, _ = build(variant)
        agent.on_close = on_close
        variant.call(agent, "before", session_id="s")
        before = snapshot(agent)

        async def take(agent: Any = agent) -> None:
            stream = agent("cut", session_id="s")
            for _ in range(taken):
                await anext(stream)
            await stream.aclose()

        if variant.asynchronous:
            asyncio.run(take())
        else:
            stream = agent("cut", session_id="s")
            for _ in range(taken):
                next(stream)
            stream.close()
        if on_close == "discard":
            assert snapshot(agent) == before
        else:
            *_, question, answer = agent.memory.get_memory("s")
            assert question.content == "cut"
            assert answer.content == "".join(WORDS[:taken])
            assert answer.stream_state is AgentStatusCode.STREAM_ING
        assert agent._sessions._running == {}
        assert variant.call(agent, "after", session_id="s").content == "one two three"


def test_closing_a_stream_closes_that_of_the_model(variants: list[Any]) -> None:
    for variant in variants[2:]:
        closed: list[str] = []

        class Model(BaseLLM):
            def _stream(self, request: Any, closed: Any = closed) -> Any:
                try:
                    while True:
                        yield ModelChunk("x")
                finally:
                    closed.append("closed")

        agent = variant.cls("Agent")(Model())

        async def take(agent: Any = agent) -> None:
            stream = agent("x")
            await anext(stream)
            await stream.aclose()

        if variant.asynchronous:
            asyncio.run(take())
        else:
            stream = agent("x")
            next(stream)
            stream.close()
        assert closed == ["closed"]


class TestTrees:
    def test_children_that_ended_keep_what_they_recorded(self, variant: Any) -> None:
        chain = variant.cls("Sequential")(
            variant.cls("Agent")(variant.model(["fine"]), name="a"),
            variant.cls("Agent")(variant.model([Fault]), name="b"),
            name="s",
        )
        with pytest.raises(Fault):
            variant.call(chain, "x", session_id="s")
        state = chain.state_dict("s")
        assert [len(state[key]) for key in ("memory", "0.memory", "1.memory")] == [0, 2, 0]

    def test_unless_the_caller_wants_all_undone(self, variant: Any) -> None:
        chain = variant.cls("Sequential")(
            variant.cls("Agent")(variant.model(["fine", "again"]), name="a"),
            variant.cls("Agent")(variant.model(["well", Fault]), name="b"),
            name="s",
        )
        variant.call(chain, "first", session_id="s")
        before = chain.state_dict("s")
        with pytest.raises(Fault), chain.atomic("s"):
            variant.call(chain, "second", session_id="s")
        assert chain.state_dict("s") == before

        async def main() -> None:
            async with chain.session("s").atomic():
                raise Fault

        with pytest.raises(Fault):
            asyncio.run(main())
        assert chain.state_dict("s") == before
