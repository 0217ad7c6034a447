"""Sessions: one call at a time in each, none seen by another, none kept for ever."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from lagent.agents import Agent, AsyncAgent, AsyncStreamingAgent, Sequential, StreamingAgent, ToolAgent
from lagent.errors import ConfigurationError, SessionBusyError, SessionRequiredError, StateError
from lagent.hooks import Hook
from lagent.memory import Memory
from lagent_echo import AsyncEchoModel, EchoModel


def test_sessions_do_not_see_each_other(variant: Any) -> None:
    agent = variant.cls("Agent")(variant.model())
    for session_id in (0, 1, "1", "user-42"):
        variant.call(agent, f"I am {session_id!r}", session_id=session_id)
    for session_id in (0, 1, "1", "user-42"):
        assert [m.content for m in agent.memory.get_memory(session_id)] == [f"I am {session_id!r}"] * 2


@pytest.mark.parametrize("wrong", [True, 1.5, b"x", ["a"], object()])
def test_an_id_is_a_string_or_an_integer(variant: Any, wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="session_id must be a string or an integer"):
        variant.call(variant.cls("Agent")(variant.model()), "x", session_id=wrong)


class TestRequired:
    def test_a_call_without_one_is_an_error(self, variant: Any) -> None:
        agent = variant.cls("Agent")(variant.model(), require_session=True)
        with pytest.raises(SessionRequiredError, match="pass session_id="):
            variant.call(agent, "x")
        assert variant.call(agent, "x", session_id=0).content == "x"

    def test_agents_inside_join_the_session_of_the_call(self) -> None:
        class Outer(Agent):
            def __init__(self) -> None:
                super().__init__()
                self.inner = Agent(EchoModel(), require_session=True)

            def forward(self, message: Any, session_id: Any = 0) -> Any:
                return self.inner(message)  # as the README of lagent 0.5 forgets it

        outer = Outer()
        outer("x", session_id="mine")
        assert outer.inner.memory.sessions() == ["mine"]

    def test_also_in_asynchronous_and_streaming_ones_and_not_beyond_them(self) -> None:
        class Outer(AsyncStreamingAgent):
            def __init__(self) -> None:
                super().__init__()
                self.inner = AsyncAgent(AsyncEchoModel(), require_session=True)

            async def forward(self, message: Any, session_id: Any = 0) -> Any:
                yield await self.inner(message)
                yield await self.inner("again")

        async def main() -> None:
            outer, bystander = Outer(), AsyncAgent(AsyncEchoModel())
            async for _ in outer("x", session_id="mine"):
                await bystander("hello")
            assert outer.inner.memory.sessions() == ["mine"]
            assert bystander.memory.sessions() == [0]

        asyncio.run(main())

        class Plain(StreamingAgent):
            def forward(self, message: Any, session_id: Any = 0) -> Any:
                yield "a"
                yield "b"

        bystander = Agent(EchoModel())
        for _ in Plain()("x", session_id="mine"):
            bystander("hello")
        assert bystander.memory.sessions() == [0]


class TestOneAtATime:
    def test_threads_wait_in_the_order_of_their_arrival(self) -> None:
        agent = Agent(EchoModel(delay=0.02))
        threads = []
        for i in range(6):
            threads.append(threading.Thread(target=agent, args=(f"m{i}",), kwargs={"session_id": "s"}))
            threads[-1].start()
            time.sleep(0.005)
        for thread in threads:
            thread.join()
        assert [m.content for m in agent.memory.get_memory("s")] == [f"m{i}" for i in range(6) for _ in range(2)]

    async def test_so_do_tasks(self) -> None:
        agent = AsyncAgent(AsyncEchoModel(delay=0.005))
        await asyncio.gather(*(agent(f"m{i}", session_id="s") for i in range(6)))
        assert [m.content for m in agent.memory.get_memory("s")] == [f"m{i}" for i in range(6) for _ in range(2)]

    async def test_a_cancelled_wait_lets_the_others_in(self) -> None:
        agent = AsyncAgent(AsyncEchoModel(delay=0.01))
        tasks = [asyncio.ensure_future(agent(f"m{i}", session_id="s")) for i in range(4)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(done[1], asyncio.CancelledError)
        assert [m.content for m in agent.memory.get_memory("s")][::2] == ["m0", "m2", "m3"]
        assert agent._sessions._running == {}

    async def test_cancelled_just_when_it_is_let_in(self) -> None:
        agent = AsyncAgent(AsyncEchoModel())
        flow = agent._sessions.enter("s", "a")
        with pytest.raises(StopIteration):
            next(flow)
        waiting = asyncio.ensure_future(agent("x", session_id="s"))
        await asyncio.sleep(0)
        agent._sessions.leave("s")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert agent._sessions._running == {}

    async def test_rejected_if_the_agent_says_so(self) -> None:
        agent = AsyncAgent(AsyncEchoModel(delay=0.01), on_busy="reject", name="bot")
        first = asyncio.ensure_future(agent("a", session_id="s"))
        await asyncio.sleep(0)
        with pytest.raises(SessionBusyError, match="session 's' of agent 'bot' is busy"):
            await agent("b", session_id="s")
        assert (await agent("c", session_id="t")).content == "c"
        assert (await first).content == "a"
        assert [m.content for m in agent.memory.get_memory("s")] == ["a", "a"]

    def test_a_call_that_would_wait_for_itself_is_an_error(self) -> None:
        class Loop(Agent):
            def forward(self, message: Any, session_id: Any = 0) -> Any:
                return self(message, session_id=session_id)

        with pytest.raises(SessionBusyError, match="still in a call of that session"):
            Loop()("x")
        agent = StreamingAgent(EchoModel(["a b"]))
        stream = agent("x")
        next(stream)
        with pytest.raises(SessionBusyError):
            next(agent("y"))
        stream.close()
        assert agent._sessions._running == {}

    async def test_different_sessions_run_side_by_side(self) -> None:
        barrier = threading.Barrier(8)
        agent = AsyncAgent(EchoModel(lambda messages: barrier.wait(10) is not None and "x"))
        answers = await asyncio.gather(*(agent("q", session_id=i) for i in range(8)))
        assert [a.content for a in answers] == ["x"] * 8

    async def test_a_reset_or_load_inside_the_loop_does_not_wait_for_ever(self) -> None:
        agent = AsyncAgent(AsyncEchoModel(delay=0.01))
        state = agent.state_dict("s")
        running = asyncio.ensure_future(agent("a", session_id="s"))
        await asyncio.sleep(0)
        with pytest.raises(SessionBusyError, match="await its end first"):
            agent.reset("s")
        with pytest.raises(SessionBusyError):
            agent.load_state_dict(state, "s")
        await running
        agent.reset("s")
        assert agent.memory.get_memory("s") == []


class TestClosing:
    def test_a_handle_closes_its_session(self, variant: Any) -> None:
        model, events = variant.model(), []

        class Watch(Hook):
            def session_opened(self, agent: Any, session_id: Any) -> None:
                events.append(("opened", session_id))

            def session_closed(self, agent: Any, session_id: Any) -> None:
                events.append(("closed", session_id))
                assert agent is watched

        watched = agent = variant.cls("Agent")(model, hooks=[Watch()])
        with agent.session("user-42") as session:
            assert variant.call(session, "hi").content == "hi"
            assert [m.content for m in session.memory.get_memory()] == ["hi", "hi"]
            state = session.state_dict()
            session.reset()
            assert session.memory is None
            session.load_state_dict(state)
            assert session.state_dict() == state
        assert agent.memory.sessions() == []
        assert model.closed_sessions == ["user-42"]
        assert events[0] == ("opened", "user-42")
        assert events[-1] == ("closed", "user-42")

    async def test_asynchronously(self) -> None:
        agent = AsyncAgent(AsyncEchoModel())
        async with agent.session("s") as session:
            await session("x")
        assert agent.memory.sessions() == []

    def test_everything_below_is_closed_too(self, variant: Any) -> None:
        from lagent.actions import BaseAction

        closed: list[Any] = []

        class Holding(BaseAction):
            """Holds."""

            def run(self) -> str:
                """Do."""
                return "x"

            def close_session(self, session_id: Any) -> None:
                closed.append(session_id)

        tools = variant.cls("ToolAgent")(variant.model(), [Holding()])
        chain = variant.cls("Sequential")(tools)
        variant.call(chain, "x", session_id="s")
        chain.close_session("s")
        assert closed == ["s"]
        assert tools.agent.llm.closed_sessions == ["s"]
        assert all(agent.memory.sessions() == [] for _, agent in chain.named_agents())

    def test_one_that_fails_does_not_keep_the_others_from_closing(self) -> None:
        class Stuck(EchoModel):
            def close_session(self, session_id: Any) -> None:
                raise RuntimeError("stuck")

        fine = EchoModel()
        chain = Sequential(Agent(Stuck()), Agent(Stuck()), Agent(fine))
        chain("x", session_id="s")
        with pytest.raises(RuntimeError, match="stuck"):
            chain.close_session("s")
        assert fine.closed_sessions == ["s"]
        assert all(agent.memory.sessions() == [] for _, agent in chain.named_agents())

    def test_the_least_recently_used_go_first(self, variant: Any) -> None:
        agent = variant.cls("Agent")(variant.model(), max_sessions=2)
        for session_id in ("a", "b", "a", "c"):
            variant.call(agent, "x", session_id=session_id)
        assert set(agent.memory.memory_map) == {"a", "c"}
        variant.call(agent, "x", session_id="d")
        assert set(agent.memory.memory_map) == {"c", "d"}
        assert agent.llm.closed_sessions == ["b", "a"]

    def test_idle_ones_are_closed_at_the_next_call(self) -> None:
        agent = Agent(EchoModel(), idle_seconds=0.05)
        agent("x", session_id="a")
        time.sleep(0.06)
        agent("x", session_id="b")
        assert list(agent.memory.memory_map) == ["b"]
        agent("x", session_id="b")
        assert list(agent.memory.memory_map) == ["b"]
        agent.close_session("b")
        assert not agent._sessions._used

    def test_only_as_many_and_only_those_that_are_idle(self) -> None:
        agent = Agent(EchoModel(), max_sessions=3, idle_seconds=60)
        for session_id in "abcd":
            agent("x", session_id=session_id)
        assert agent.llm.closed_sessions == ["a"]
        idle = Agent(EchoModel(), idle_seconds=60)
        for session_id in "abcabc":
            idle("x", session_id=session_id)
        assert idle.llm.closed_sessions == []

    async def test_a_session_in_use_is_never_closed(self) -> None:
        agent = AsyncAgent(AsyncEchoModel(delay=0.02), max_sessions=1)
        await agent("x", session_id="a")
        answers = await asyncio.gather(agent("y", session_id="a"), agent("z", session_id="b"))
        assert [a.content for a in answers] == ["y", "z"]
        assert len(agent.memory.get_memory("a")) == 4

    def test_what_fails_there_is_logged_and_does_not_reach_the_call_that_met_it(self, caplog: Any) -> None:
        class Stuck(EchoModel):
            def close_session(self, session_id: Any) -> None:
                raise RuntimeError("stuck")

        agent = Agent(Stuck(), max_sessions=1)
        agent("x", session_id="a")
        assert agent("y", session_id="b").content == "y"
        assert "closing the expired session 'a' of agent 'Agent' failed" in caplog.text

    def test_one_that_became_busy_again_stays(self) -> None:
        agent = Agent(EchoModel(), max_sessions=1)
        inner = Agent(EchoModel())
        chain = Sequential(agent, inner, max_sessions=1)
        chain("x", session_id="a")
        run = inner._sessions.enter("a", "inner")
        with pytest.raises(StopIteration):
            next(run)
        chain("y", session_id="b")
        assert [m.content for m in inner.memory.get_memory("a")] == ["x", "x"]
        inner._sessions.leave("a")


class TestHandle:
    def test_passes_everything_on_to_its_session(self) -> None:
        model = EchoModel()
        chain = Sequential(Agent(model), Agent(model))
        handle = chain.session("s")
        assert handle("x", exit_at=0, temperature=0.25).content == "x"
        assert model.requests[0].params["temperature"] == 0.25
        assert len(model.requests) == 1
        state = handle.state_dict()
        assert [m["content"] for m in state["memory"]] == ["x", "x"]
        with pytest.raises(ZeroDivisionError), handle.atomic():
            handle("y")
            raise ZeroDivisionError
        assert handle.state_dict() == state
        handle.reset(keypath="0")
        assert [len(messages) for messages in list(handle.state_dict().values())[1:]] == [2, 0, 0]
        handle.load_state_dict(state)
        handle.reset(recursive=True)
        assert [len(messages) for messages in list(handle.state_dict().values())[1:]] == [0, 0, 0]
        del state["0.memory"]
        with pytest.raises(StateError, match="missing keys: 0.memory"):
            handle.load_state_dict(state)
        assert handle.load_state_dict(state, strict=False).missing_keys == ["0.memory"]
        assert chain.memory.sessions() == ["s"]

    def test_the_model_of_an_atomic_block_may_be_stored(self, variant: Any) -> None:
        waits: list[int] = []

        class Slow(Memory):
            blocking = True

            def restore(self, mark: Any) -> None:
                waits.append(threading.get_ident())
                super().restore(mark)

        agent = variant.cls("Agent")(variant.model(), memory=Slow)

        async def main() -> None:
            async with agent.atomic("s"):
                agent.memory.add("x", session_id="s")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            asyncio.run(main())
        assert agent.memory.get_memory("s") == []
        assert waits != [threading.get_ident()]


class TestReset:
    def test_keypath_and_recursion(self) -> None:
        chain = Sequential(ToolAgent(EchoModel(["x"] * 9), ["calculator"]), Agent(EchoModel()))

        def filled() -> set[str]:
            return {key for key, messages in chain.state_dict().items() if key != "version" and messages}

        everything = {"memory", "0.memory", "0.agent.memory", "1.memory"}
        chain("q")
        assert filled() == everything
        chain.reset()
        assert filled() == everything - {"memory"}
        chain.reset(keypath="0.agent")
        assert filled() == {"0.memory", "1.memory"}
        chain.reset(recursive=True)
        assert filled() == set()
        with pytest.raises(ConfigurationError, match="exclude each other"):
            chain.reset(keypath="0", recursive=True)
        with pytest.raises(KeyError, match="no agent at '0.x'; it has 0, 0.agent, 1"):
            chain.reset(keypath="0.x")
