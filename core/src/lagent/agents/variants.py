"""The other three variants of an agent. Each runs the flows of :class:`Agent` with another driver."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, ClassVar

from lagent import flow
from lagent.agents.agent import Agent, is_own, own
from lagent.flow import Flow, invoke
from lagent.schema import AgentMessage, SessionId

__all__ = [
    "VARIANTS",
    "AsyncAgent",
    "AsyncAgentMixin",
    "AsyncStreamingAgent",
    "AsyncStreamingAgentMixin",
    "StreamingAgent",
    "StreamingAgentMixin",
    "call_agent",
]


class AsyncAgentMixin:
    """Makes calling an agent a coroutine; goes before the agent's class."""

    asynchronous: ClassVar[bool] = True

    @own
    async def __call__(
        self: Any, *message: AgentMessage | str, session_id: SessionId | None = None, **kwargs: Any
    ) -> AgentMessage:
        """See :meth:`Agent.__call__`."""
        answer: AgentMessage = await flow.arun(self._call(message, session_id, kwargs))
        return answer

    @own
    async def forward(self: Any, *message: AgentMessage, session_id: SessionId = 0, **kwargs: Any) -> Any:
        """See :meth:`Agent.forward`."""
        return await flow.arun(self._steps(message, session_id, kwargs))


class StreamingAgentMixin:
    """Makes calling an agent give an iterator of messages; goes before the agent's class.

    The ``content`` of each is the text so far, ``increment`` what is new in it; the last one is the answer.
    """

    streaming: ClassVar[bool] = True

    @own
    def __call__(
        self: Any, *message: AgentMessage | str, session_id: SessionId | None = None, **kwargs: Any
    ) -> Iterator[AgentMessage]:
        """See :meth:`Agent.__call__`."""
        return flow.stream(self._call(message, session_id, kwargs))

    @own
    def forward(self: Any, *message: AgentMessage, session_id: SessionId = 0, **kwargs: Any) -> Iterator[Any]:
        """See :meth:`Agent.forward`."""
        return flow.stream(self._steps(message, session_id, kwargs))


class AsyncStreamingAgentMixin:
    """Makes calling an agent give an asynchronous iterator of messages, as :class:`StreamingAgentMixin` says."""

    asynchronous: ClassVar[bool] = True
    streaming: ClassVar[bool] = True

    @own
    def __call__(
        self: Any, *message: AgentMessage | str, session_id: SessionId | None = None, **kwargs: Any
    ) -> AsyncIterator[AgentMessage]:
        """See :meth:`Agent.__call__`."""
        return flow.astream(self._call(message, session_id, kwargs))

    @own
    def forward(self: Any, *message: AgentMessage, session_id: SessionId = 0, **kwargs: Any) -> AsyncIterator[Any]:
        """See :meth:`Agent.forward`."""
        return flow.astream(self._steps(message, session_id, kwargs))


class AsyncAgent(AsyncAgentMixin, Agent):
    """An :class:`Agent` whose call is a coroutine."""


class StreamingAgent(StreamingAgentMixin, Agent):
    """An :class:`Agent` whose call gives an iterator of messages."""


class AsyncStreamingAgent(AsyncStreamingAgentMixin, Agent):
    """An :class:`Agent` whose call gives an asynchronous iterator of messages."""


VARIANTS: dict[tuple[bool, bool], type[Agent]] = {
    (False, False): Agent,
    (True, False): AsyncAgent,
    (False, True): StreamingAgent,
    (True, True): AsyncStreamingAgent,
}
"""The plain agent by whether it is asynchronous and whether it streams: what an agent of that variant asks its model with."""


def call_agent(agent: Callable[..., Any], message: Any, session_id: SessionId, kwargs: dict[str, Any]) -> Flow[AgentMessage]:
    """Call an agent of any variant from the steps of another; what it emits and its answer are emitted."""
    message = message if isinstance(message, (list, tuple)) else (message,)
    if isinstance(agent, Agent) and is_own(type(agent).__call__):
        answer: AgentMessage = yield from agent._call(tuple(message), session_id, kwargs)
    else:
        answer = yield from invoke(
            agent, *message, blocking=not getattr(agent, "asynchronous", False), session_id=session_id, **kwargs
        )
    yield answer
    return answer
