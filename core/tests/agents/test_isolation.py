"""Many sessions at once, with failures, resets, closes and loads: no message is ever seen in another session."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lagent.agents import AsyncAgent, AsyncSequential, AsyncStreamingAgent, Sequential, StreamingAgent
from lagent.agents.agent import Agent
from lagent.llms import AsyncBaseLLM, BaseLLM
from lagent.schema import ModelChunk

SESSIONS = [0, 1, "1", "user-42", ""]


class Failure(Exception):
    pass


class Overlap:
    """Notices two calls of one session inside the model at the same time."""

    def __init__(self) -> None:
        self.inside: set[Any] = set()
        self.lock = threading.Lock()
        self.overlapped: list[Any] = []

    def enter(self, session_id: Any) -> None:
        key = type(session_id), session_id
        with self.lock:
            if key in self.inside:
                self.overlapped.append(session_id)
            self.inside.add(key)

    def leave(self, session_id: Any) -> None:
        with self.lock:
            self.inside.discard((type(session_id), session_id))


def answer(request: Any) -> str:
    question = request.messages[-1]["content"]
    if question.endswith("fail"):
        raise Failure(question)
    return f"re {question}"


def models(overlap: Overlap) -> tuple[Any, Any]:
    class Model(BaseLLM):
        def _stream(self, request: Any) -> Any:
            overlap.enter(request.session_id)
            try:
                for word in answer(request).split(" "):
                    yield ModelChunk(word)
            finally:
                overlap.leave(request.session_id)

    class AsyncModel(AsyncBaseLLM):
        async def _stream(self, request: Any) -> Any:
            overlap.enter(request.session_id)
            try:
                for word in answer(request).split(" "):
                    await asyncio.sleep(0)
                    yield ModelChunk(word)
            finally:
                overlap.leave(request.session_id)

    return Model(), AsyncModel()


class Machine(RuleBasedStateMachine):
    """Drives one agent; ``expected`` says which questions each session should hold answers to."""

    asynchronous = False

    def __init__(self) -> None:
        super().__init__()
        self.overlap = Overlap()
        model, async_model = models(self.overlap)
        if self.asynchronous:
            self.agent: Any = AsyncSequential(AsyncAgent(async_model, name="a"), AsyncStreamingAgent(async_model, name="b"))
        else:
            self.agent = Sequential(Agent(model, name="a"), StreamingAgent(model, name="b"))
        self.expected: dict[Any, list[str]] = {self.key(s): [] for s in SESSIONS}
        self.saved: dict[Any, Any] = {}
        self.number = 0

    @staticmethod
    def key(session_id: Any) -> str:
        return f"<{type(session_id).__name__}:{session_id}>"

    @rule(calls=st.lists(st.tuples(st.sampled_from(SESSIONS), st.sampled_from(["ok", "fail", "cancel"])), min_size=1, max_size=8))
    def call_at_once(self, calls: Any) -> None:
        planned = []
        for session_id, kind in calls:
            self.number += 1
            planned.append((session_id, kind, f"{self.key(session_id)}#{self.number}{'-fail' if kind == 'fail' else ''}"))
        ended = asyncio.run(self.in_tasks(planned)) if self.asynchronous else self.in_threads(planned)
        for (session_id, _, question), completed in zip(planned, ended, strict=True):
            if completed:
                self.expected[self.key(session_id)].append(question)

    def in_threads(self, planned: Any) -> list[bool]:
        def call(item: Any) -> bool:
            session_id, _, question = item
            try:
                self.agent(question, session_id=session_id)
            except Failure:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(call, planned))

    async def in_tasks(self, planned: Any) -> list[bool]:
        tasks = [asyncio.ensure_future(self.agent(question, session_id=session_id)) for session_id, _, question in planned]
        for _ in range(3):
            await asyncio.sleep(0)
        for task, (_, kind, _) in zip(tasks, planned, strict=True):
            if kind == "cancel":
                task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        return [not isinstance(result, BaseException) for result in results]

    @rule(session_id=st.sampled_from(SESSIONS))
    def reset(self, session_id: Any) -> None:
        self.agent.reset(session_id, recursive=True)
        self.expected[self.key(session_id)] = []

    @rule(session_id=st.sampled_from(SESSIONS))
    def close(self, session_id: Any) -> None:
        self.agent.close_session(session_id)
        self.expected[self.key(session_id)] = []

    @rule(session_id=st.sampled_from(SESSIONS))
    def save(self, session_id: Any) -> None:
        self.saved[self.key(session_id)] = self.agent.state_dict(session_id), list(self.expected[self.key(session_id)])

    @precondition(lambda self: self.saved)
    @rule(session_id=st.sampled_from(SESSIONS))
    def load(self, session_id: Any) -> None:
        if self.key(session_id) in self.saved:
            state, questions = self.saved[self.key(session_id)]
            self.agent.load_state_dict(state, session_id)
            self.expected[self.key(session_id)] = list(questions)

    @invariant()
    def every_session_holds_its_own_turns_whole(self) -> None:
        assert self.overlap.overlapped == []
        for session_id in SESSIONS:
            held = [m.content for m in self.agent.memory.get_memory(session_id)]
            questions, answers = held[::2], held[1::2]
            assert sorted(questions) == sorted(self.expected[self.key(session_id)])
            assert answers == [f"rere{question}" for question in questions]
            for _, agent in self.agent.named_agents():
                assert all(self.key(session_id) in m.content for m in agent.memory.get_memory(session_id))
        assert self.agent._sessions._running == {}


class AsyncMachine(Machine):
    asynchronous = True


TestThreads = Machine.TestCase
TestThreads.settings = settings(max_examples=25, stateful_step_count=12, deadline=None)
TestTasks = AsyncMachine.TestCase
TestTasks.settings = settings(max_examples=25, stateful_step_count=12, deadline=None)
