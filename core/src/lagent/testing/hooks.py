"""The kit for hooks."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest

from lagent.actions import ActionExecutor
from lagent.agents import Agent, AsyncAgent, AsyncStreamingAgent, StreamingAgent
from lagent.hooks import EVENTS
from lagent.llms import BaseLLM, Capabilities, ModelRequest
from lagent.schema import ActionReturn, AgentMessage, FunctionCall, ModelChunk, ModelResponse
from lagent.testing.kit import Kit, items, value_of

__all__ = ["HookTests"]

_QUESTIONS: tuple[Any, ...] = (
    "Hello!",
    "",
    "漢字 🙂\x00\n{not} %s a format",
    AgentMessage([{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "data:,"}}]),
    AgentMessage("Hello!", sender="Other", extra_info={"n": 1}, type="greeting", receiver="Agent"),
)


class HookTests(Kit):
    """What every hook has to do.

    Fixtures:
        hook: the hook: an object or a module.

    Attributes:
        changes: whether the hook changes what passes through it; if not, everything has to come out as it went in.
        refuses: whether it may fail a call on purpose, as a guard does.
    """

    changes: ClassVar[bool] = False
    refuses: ClassVar[bool] = False

    @pytest.fixture
    def hook(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} needs a fixture 'hook' that returns the hook to test")

    def _answers(self, agent: Any, question: Any, session_id: Any = 0) -> list[AgentMessage]:
        """What an agent of whatever variant gives for a question: its answer, or all messages of the stream."""
        result = agent(question, session_id=session_id)
        if hasattr(result, "__anext__") or hasattr(result, "__next__"):
            return list(items(result))
        return [value_of(lambda: result)]

    def _check(self, agent: Any, plain: Any, question: Any, session_id: Any = 0) -> None:
        """Check that an agent with the hook answers, and, unless the hook changes things, as one without it."""
        try:
            answers = self._answers(agent, question, session_id)
        except Exception:
            if self.refuses:
                return
            raise
        assert all(isinstance(answer, AgentMessage) for answer in answers)
        if not self.changes:
            expected = self._answers(plain, question, session_id)
            assert answers == expected, "the hook changes the answer; set changes = True if it is meant to"

    # Registration

    def test_registration(self, hook: Any) -> None:
        agent = Agent(_Scripted())
        handle = agent.register_hook(hook)
        self._check(agent, Agent(_Scripted()), "Hello!")
        handle.remove()
        handle.remove()
        assert self._answers(agent, "Hello again!")

    def test_it_hears_of_an_event(self, hook: Any) -> None:
        heard = [event for event in EVENTS if callable(getattr(hook, event, None))]
        assert heard, f"the hook has no method named after an event ({', '.join(EVENTS)})"

    # Agents

    @pytest.mark.parametrize("variant", [Agent, AsyncAgent, StreamingAgent, AsyncStreamingAgent])
    def test_in_every_variant(self, hook: Any, variant: Any) -> None:
        agent, plain = variant(_Scripted(), hooks=[hook]), variant(_Scripted())
        for _ in range(3):
            self._check(agent, plain, "Hello!")

    @pytest.mark.parametrize("question", _QUESTIONS, ids=range(len(_QUESTIONS)))
    def test_any_message(self, hook: Any, question: Any) -> None:
        self._check(Agent(_Scripted(), hooks=[hook]), Agent(_Scripted()), question)

    def test_memory_is_not_changed(self, hook: Any) -> None:
        agent, plain = Agent(_Scripted(), hooks=[hook]), Agent(_Scripted())
        for question in _QUESTIONS:
            self._check(agent, plain, question)
        if not self.changes and not self.refuses:
            assert agent.state_dict() == plain.state_dict(), "the hook has changed what memory holds"
        json.dumps(agent.state_dict())

    def test_sessions(self, hook: Any) -> None:
        agent, plain = Agent(_Scripted(), hooks=[hook]), Agent(_Scripted())
        for session_id in (0, 1, "1", "会话/ß"):
            self._check(agent, plain, f"Hello from {session_id}!", session_id)
            agent.reset(session_id)

    def test_concurrent_sessions(self, hook: Any) -> None:
        agent, plain = Agent(_Scripted(), hooks=[hook]), Agent(_Scripted())
        with ThreadPoolExecutor(8) as pool:
            jobs = [pool.submit(self._check, agent, plain, f"Hello from {n}!", n) for n in range(32)]
            for job in jobs:
                job.result()

    def test_errors_pass_through(self, hook: Any) -> None:
        agent = Agent(_Failing(), hooks=[hook])
        for _ in range(2):
            with pytest.raises(Exception) as caught:  # noqa: PT011
                agent("Hello!")
            assert self.refuses or "the model is out of order" in str(caught.value), "the hook hides the error of the model"

    # Actions

    def test_in_an_executor(self, hook: Any) -> None:
        def double(number: int) -> int:
            return 2 * number

        executor = ActionExecutor([double], hooks=[hook])
        for content in (FunctionCall("double", {"number": 21}), FunctionCall("double", {}), FunctionCall("no_such_action", "…")):
            try:
                answer = executor(AgentMessage(content, sender="Agent"), session_id=1)
            except Exception:
                if self.refuses:
                    continue
                raise
            assert isinstance(answer, AgentMessage)
            if not self.changes:
                assert isinstance(answer.content, ActionReturn)
                assert answer.content == ActionExecutor([double])(AgentMessage(content, sender="Agent"), session_id=1).content


class _Scripted(BaseLLM):
    """Says what it was told, word by word."""

    capabilities = Capabilities(streaming=True, images=True)
    blocking = False

    def _stream(self, request: ModelRequest) -> Any:
        for word in str(request.messages[-1]["content"]).split():
            yield ModelChunk(content=f"{word} ")
        yield ModelChunk(finish_reason="stop")


class _Failing(BaseLLM):
    def _complete(self, request: ModelRequest) -> ModelResponse:
        raise RuntimeError("the model is out of order")
