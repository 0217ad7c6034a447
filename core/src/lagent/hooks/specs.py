"""The events of an agent's life. A hook implements some of them, as methods of an object or as functions of a module.

Every event is given as arguments what its specification names; an implementation marked with :data:`hookimpl` may take fewer of them,
by name. Hooks run in the order of their registration, those of the process before those of the agent. ``message`` (or ``messages``,
``response``) may be changed in place or replaced by returning another; ``None`` leaves it. What memory holds is not affected by either.
An implementation may be a coroutine function. An exception in a hook fails the call, as :class:`lagent.errors.HookError`.
"""

from __future__ import annotations

from typing import Any

import pluggy

__all__ = ["EVENTS", "hookimpl"]

hookspec = pluggy.HookspecMarker("lagent")
hookimpl = pluggy.HookimplMarker("lagent")
"""Marks a function or method as the implementation of the event it is named after."""


@hookspec
def before_agent(agent: Any, message: Any, session_id: Any) -> Any:
    """An agent was called, and has not yet added the input to its memory.

    Args:
        agent: the agent.
        message: the list of input messages.
        session_id: the session of the call.

    Returns:
        Another list of messages, or one message, to go on with; ``None`` for the same.
    """


@hookspec
def after_agent(agent: Any, message: Any, session_id: Any) -> Any:
    """An agent has its answer, in its memory already.

    Args:
        agent: the agent.
        message: the answer.
        session_id: the session of the call.

    Returns:
        Another message to give to the caller; ``None`` for the same.
    """


@hookspec
def before_model(agent: Any, messages: Any, session_id: Any) -> Any:
    """An agent is about to ask its model.

    Args:
        agent: the agent.
        messages: the model messages in OpenAI's form; return others rather than change the ones given.
        session_id: the session of the call.

    Returns:
        Other messages to send; ``None`` for the same.
    """


@hookspec
def after_model(agent: Any, response: Any, session_id: Any) -> Any:
    """The model has answered; nothing is parsed yet.

    Args:
        agent: the agent.
        response: the :class:`lagent.schema.ModelResponse`.
        session_id: the session of the call.

    Returns:
        Another response to go on with; ``None`` for the same.
    """


@hookspec
def before_action(executor: Any, message: Any, session_id: Any) -> Any:
    """An executor is about to run an action.

    Args:
        executor: the action executor.
        message: the message whose content names the action and its parameters.
        session_id: the session of the call.

    Returns:
        Another message to go on with; ``None`` for the same.
    """


@hookspec
def after_action(executor: Any, message: Any, session_id: Any) -> Any:
    """An action has ended, well or not.

    Args:
        executor: the action executor.
        message: the message whose content is the :class:`lagent.schema.ActionReturn`.
        session_id: the session of the call.

    Returns:
        Another message to give to the caller; ``None`` for the same.
    """


@hookspec
def stream_chunk(agent: Any, message: Any, session_id: Any) -> Any:
    """A streaming agent is about to yield a message of an unfinished answer.

    Args:
        agent: the agent.
        message: the answer so far; ``message.increment`` is what is new.
        session_id: the session of the call.

    Returns:
        Another message to yield; ``None`` for the same.
    """


@hookspec
def agent_error(agent: Any, error: Any, session_id: Any) -> Any:
    """A call of an agent failed or was cancelled; its memory is as it was before the call.

    Args:
        agent: the agent.
        error: the exception, which is raised to the caller afterwards.
        session_id: the session of the call.

    Returns:
        Nothing; what is returned is ignored.
    """


@hookspec
def session_opened(agent: Any, session_id: Any) -> Any:
    """An agent serves its first call of a session.

    Args:
        agent: the agent.
        session_id: the session.

    Returns:
        Nothing; what is returned is ignored.
    """


@hookspec
def session_closed(agent: Any, session_id: Any) -> Any:
    """An agent has released a session.

    Args:
        agent: the agent.
        session_id: the session.

    Returns:
        Nothing; what is returned is ignored.
    """


EVENTS = (
    "before_agent",
    "after_agent",
    "before_model",
    "after_model",
    "before_action",
    "after_action",
    "stream_chunk",
    "agent_error",
    "session_opened",
    "session_closed",
)
"""The names of all events."""
