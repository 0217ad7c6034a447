"""The agent: an object you call."""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Literal, TypeVar

from lagent import flow
from lagent.actions import ActionExecutor
from lagent.agents.model_turn import ModelTurn
from lagent.agents.sessions import Atomic, OnBusy, SessionHandle, Sessions
from lagent.agents.state import IncompatibleKeys, load_state_dict, state_dict
from lagent.agents.tree import AgentTree
from lagent.aggregators import DefaultAggregator
from lagent.errors import ConfigurationError, SessionBusyError, SessionRequiredError
from lagent.flow import Call, Flow, StreamClosed, current_session, invoke
from lagent.hooks import HookManager, RemovableHandle
from lagent.llms.adapt import capabilities_of
from lagent.memory import Memory, MemoryManager
from lagent.registry import create
from lagent.schema import AgentMessage, SessionId

__all__ = ["Agent"]

_log = logging.getLogger("lagent")

OnClose = Literal["discard", "keep"]


F = TypeVar("F", bound=Callable[..., Any])


def own(function: F) -> F:
    """Marks ``__call__`` and ``forward`` of lagent's own, which only run a flow, so that the flow may be joined instead."""
    function.__dict__["runs_a_flow"] = True
    return function


def is_own(function: Any) -> bool:
    """Whether a method is one that :func:`own` marks, and not overridden."""
    return hasattr(function, "runs_a_flow")


class Agent(AgentTree):
    """Answers messages with a model, and remembers what was said.

    Calling an agent runs *before hooks → memory.add(input) → forward → memory.add(output) → after hooks*. Override :meth:`forward` for an
    agent of your own. A call that fails, is cancelled, or whose stream is closed early leaves the memory as it was before.

    Every component may be given as an object, a class, a registry name, or a mapping of ``type`` and arguments.

    Args:
        llm: the model.
        template: the system prompt: text, a :class:`lagent.prompts.PromptTemplate`, a message, or a list of messages.
        memory: what every session gets one of; ``None`` for an agent that remembers nothing.
        output_format: the output parser, whose result goes into ``formatted``; ``"auto"`` for the one that the model's chat
            template calls for (needs lagent-parsers).
        aggregator: turns memory into model messages.
        name: the sender of the agent's messages; the name of the class by default.
        description: what the agent is for.
        hooks: see :mod:`lagent.hooks`.
        system_prompt: another name for ``template``.
        require_session: whether a call without ``session_id`` is an error; set it wherever several users are served.
        on_busy: whether a call waits for another of its session (``"wait"``) or is an error (``"reject"``).
        on_parse_error: what happens to output that cannot be parsed: ``"keep"`` it, with ``formatted`` telling the error; ``"raise"``;
            or ``"retry"``, asking the model again with the error in the prompt.
        parse_retries: how often ``"retry"`` asks again; what is wrong even then is kept.
        on_close: whether closing a stream early is as if the call had not been (``"discard"``), or records the input and the answer so
            far (``"keep"``).
        max_sessions, idle_seconds: see :class:`lagent.agents.sessions.Sessions`.

    Raises:
        ConfigurationError: an argument cannot be used.
    """

    streaming: ClassVar[bool] = False
    """Whether the agent asks its model for a stream and yields messages."""
    asynchronous: ClassVar[bool] = False
    """Whether calling the agent gives something to await."""

    def __init__(
        self,
        llm: Any = None,
        template: Any = None,
        memory: Any = Memory,
        output_format: Any = None,
        aggregator: Any = DefaultAggregator,
        name: str | None = None,
        description: str | None = None,
        hooks: Any = None,
        *,
        system_prompt: Any = None,
        require_session: bool = False,
        on_busy: OnBusy = "wait",
        on_parse_error: Literal["keep", "raise", "retry"] = "keep",
        parse_retries: int = 2,
        on_close: OnClose = "discard",
        max_sessions: int | None = None,
        idle_seconds: float | None = None,
    ) -> None:
        if template is not None and system_prompt is not None:
            raise ConfigurationError("template and system_prompt are two names for one thing: pass one of them")
        for argument, value, known in (
            ("on_parse_error", on_parse_error, ("keep", "raise", "retry")),
            ("on_close", on_close, ("discard", "keep")),
        ):
            if value not in known:
                raise ConfigurationError(f"{argument} must be one of {', '.join(known)}, not {value!r}")
        self.name = name or type(self).__name__
        self.llm = create("async_llms" if self.asynchronous else "llms", llm)
        self.memory = MemoryManager(memory, lambda: self.full_name) if memory is not None else None
        self.output_format = create("parsers", _parser_for(self.llm, output_format))
        self.template = template if template is not None else system_prompt
        self.description = description
        self.aggregator = create("aggregators", aggregator)
        self.require_session = require_session
        self.on_parse_error, self.parse_retries, self.on_close = on_parse_error, parse_retries, on_close
        self._sessions = Sessions(on_busy, max_sessions, idle_seconds)
        self._hooks = HookManager()
        for hook in hooks if isinstance(hooks, (list, tuple)) else [hooks] if hooks else []:
            self.register_hook(create("hooks", hook))

    # Calling

    @own
    def __call__(self, *message: AgentMessage | str, session_id: SessionId | None = None, **kwargs: Any) -> Any:
        """Answer.

        Args:
            message: the input; a string is a message of the user.
            session_id: whose call it is; 0 by default, or the session of the call in whose ``forward`` this call happens.
            kwargs: passed to :meth:`forward`.

        Returns:
            The answer, an :class:`AgentMessage` (awaitable, or an iterator of messages, in the other variants).

        Raises:
            SessionError: the session is missing or busy.
            ModelError: the model failed.
            HookError: a hook failed.
        """
        return flow.run(self._call(message, session_id, kwargs))

    @own
    def forward(self, *message: AgentMessage, session_id: SessionId = 0, **kwargs: Any) -> Any:
        """What the agent does with its input, which is in its memory already: the part to override.

        Returns:
            An :class:`AgentMessage`, or text (awaitable, or an iterator of these, in the other variants).
        """
        return flow.run(self._steps(message, session_id, kwargs))

    def _call(self, message: tuple[Any, ...], session_id: SessionId | None, kwargs: dict[str, Any]) -> Flow[AgentMessage]:
        """The life of a call, for all variants."""
        session_id = self._session(session_id)
        inputs: Any = [_message(item) for item in message]
        own_forward = not is_own(type(self).forward)
        if own_forward or self._hooks.heard("before_agent"):
            inputs = [item.model_copy(deep=True) for item in inputs]  # they are the caller's, and may be changed here
        if self._sessions.limited:
            yield from self._close_expired(session_id)
        if not self._sessions.try_enter(session_id):
            yield from self._sessions.enter(session_id, self.name or "")
        answer: AgentMessage | None = None
        memory: Memory | None = None

        def emit(item: Any) -> Flow[AgentMessage]:
            nonlocal answer
            answer = _message(item, self.name)
            if self._hooks.heard("stream_chunk"):
                answer = yield from self._hooks.fire("stream_chunk", self, session_id, answer)
            return answer

        try:
            if self.memory is not None:
                memory = self.memory.get(session_id) or (yield from self._open(self.memory, session_id))
                if memory.blocking:
                    yield Call(memory.begin, blocking=True)
                else:
                    memory.begin()
            if self._hooks.heard("before_agent"):
                inputs = [_message(item) for item in (yield from self._hooks.fire("before_agent", self, session_id, inputs))]
            if memory is not None:
                memory.add(inputs)
            if own_forward:
                blocking = not self.asynchronous
                result = yield from invoke(self.forward, *inputs, blocking=blocking, session_id=session_id, each=emit, **kwargs)
            else:  # nobody overrode it, so its steps can join the flow of the call
                result = yield from self._steps(tuple(inputs), session_id, kwargs, emit)
            answer = _message(result, self.name)
            if memory is not None:
                memory.add(answer)
            if self._hooks.heard("after_agent"):
                answer = yield from self._hooks.fire("after_agent", self, session_id, answer.model_copy())
            if memory is not None:
                if memory.blocking:
                    yield Call(memory.commit, blocking=True)
                else:
                    memory.commit()
            return answer
        except StreamClosed:
            if memory is not None and self.on_close == "keep" and answer is not None:
                memory.add(answer)
                yield Call(memory.commit, blocking=memory.blocking)
            raise
        except (Exception, CancelledError) as error:
            if memory is not None:
                memory.rollback()
            if self._hooks.heard("agent_error"):
                yield from self._hooks.fire("agent_error", self, session_id, error)
            raise
        finally:
            if memory is not None:
                memory.rollback()  # of a call that has ended well, there is nothing left to undo
            self._sessions.leave(session_id)

    def _steps(self, message: tuple[Any, ...], session_id: SessionId, kwargs: dict[str, Any], emit: Any = None) -> Flow[Any]:
        """What :meth:`forward` does, for all variants."""
        if self.memory is not None:
            memory = self.memory.open(session_id)
        else:
            memory = Memory()
            memory.add(list(message))
        return ModelTurn(self, session_id, memory, emit).run(kwargs)

    # Sessions

    def session(self, session_id: SessionId) -> SessionHandle:
        """A handle on one session, which closes it at the end of a ``with`` block."""
        return SessionHandle(self, self._session(session_id))

    def atomic(self, session_id: SessionId = 0) -> Atomic:
        """A block, ``with`` or ``async with``: if it raises, what this agent and all below recorded in the session is undone.

        Without it, a failed call leaves its own agent's memory as it was, while the calls of agents below that had ended stay recorded.
        """
        return Atomic(self, session_id)

    def close_session(self, session_id: SessionId) -> None:
        """Release all that hangs on a session, in this agent and those below: memory, what the model and the actions hold.

        What a persistent store keeps of it stays there; :meth:`reset` removes it.
        """
        flow.run(self._close_session(session_id))

    async def aclose_session(self, session_id: SessionId) -> None:
        """:meth:`close_session` for asynchronous callers."""
        await flow.arun(self._close_session(session_id))

    def reset(self, session_id: SessionId = 0, keypath: str | None = None, recursive: bool = False) -> None:
        """Forget a session.

        Args:
            session_id: the session.
            keypath: the agent below that is meant, such as ``"coder.0"``; this agent by default.
            recursive: whether all agents below forget it too.

        Raises:
            ConfigurationError: both ``keypath`` and ``recursive`` are given.
            KeyError: there is no agent at ``keypath``.
        """
        if keypath and recursive:
            raise ConfigurationError("keypath and recursive exclude each other: pass one of them")
        if keypath:
            return self.find_agent(keypath).reset(session_id)
        for _, agent in self.named_agents() if recursive else [("", self)]:
            if agent.memory is not None:
                with agent._sessions.hold(session_id, agent.name or ""):
                    agent.memory.reset(session_id)
        return None

    def _session(self, session_id: Any) -> SessionId:
        if session_id is None:
            session_id = current_session.get()
            if session_id is None:
                if self.require_session:
                    raise SessionRequiredError(f"agent {self.name!r} requires a session: pass session_id=")
                return 0
        if not isinstance(session_id, (str, int)) or isinstance(session_id, bool):
            raise ConfigurationError(f"session_id must be a string or an integer, not {session_id!r}")
        return session_id

    def _open(self, manager: MemoryManager, session_id: SessionId) -> Flow[Memory]:
        memory: Memory = yield Call(manager.create_instance, (session_id,), blocking=manager.store is not None)
        yield from self._hooks.fire("session_opened", self, session_id)
        return memory

    def _close_expired(self, session_id: SessionId) -> Flow[None]:
        for expired in self._sessions.expired(session_id):
            try:
                yield from self._close_session(expired, on_busy="reject")
            except SessionBusyError:
                pass  # in use again
            except Exception:
                # Not the fault of the session whose call happened to find the other one expired.
                _log.exception("closing the expired session %r of agent %r failed", expired, self.name)

    def _close_session(self, session_id: SessionId, on_busy: OnBusy = "wait") -> Flow[None]:
        """Release a session in the whole tree; what fails there is raised when all of it was tried."""
        errors: list[Exception] = []
        for _, agent in self.named_agents():
            try:
                yield from agent._release(session_id, on_busy, errors)
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _release(self, session_id: SessionId, on_busy: OnBusy, errors: list[Exception]) -> Flow[None]:
        """Let go of what this agent itself holds for a session; a component that fails to is noted in ``errors``."""
        yield from self._sessions.enter(session_id, self.name or "", on_busy)
        try:
            if self.memory is not None:
                self.memory.release(session_id)
            for component in self._components():
                if callable(close := getattr(component, "close_session", None)):
                    try:
                        yield Call(close, (session_id,), blocking=getattr(component, "blocking", True))
                    except Exception as error:
                        errors.append(error)
            yield from self._hooks.fire("session_closed", self, session_id)
        finally:
            self._sessions.leave(session_id)
            self._sessions.forget(session_id)

    def _components(self) -> Iterator[Any]:
        """The components that may hold something for a session: the model, and the executors that are attributes."""
        yield self.llm
        yield from (value for value in vars(self).values() if isinstance(value, ActionExecutor))

    # State

    def update_memory(self, message: Any, session_id: SessionId = 0) -> None:
        """Add messages to the memory of a session."""
        if self.memory is not None:
            self.memory.add(message, session_id=session_id)

    def state_dict(self, session_id: SessionId = 0) -> dict[str, Any]:
        """What this agent and those below remember of a session; see :func:`lagent.agents.state.state_dict`."""
        return state_dict(self, session_id)

    def load_state_dict(self, state_dict: Mapping[str, Any], session_id: SessionId = 0, strict: bool = True) -> IncompatibleKeys:
        """Remember what :meth:`state_dict` gave, in place of what is remembered now.

        Args:
            state_dict: the state, of this version or an older one.
            session_id: the session that takes it.
            strict: whether keys that are missing or not the agent's are an error.

        Raises:
            StateError: the state does not fit; nothing is changed then.
        """
        return load_state_dict(self, state_dict, session_id, strict)

    def register_hook(self, hook: Any) -> RemovableHandle:
        """Add a hook; ``remove()`` of the handle takes it out again."""
        return self._hooks.register(hook)


def _parser_for(llm: Any, spec: Any) -> Any:
    """The parser that ``spec`` names; ``"auto"`` is told the chat template of the model."""
    arguments = {"type": spec} if isinstance(spec, str) else dict(spec) if isinstance(spec, Mapping) else {}
    if arguments.get("type") != "auto" or "chat_template" in arguments:
        return spec
    template = getattr(llm, "chat_template", None)
    if template is None:
        raise ConfigurationError(
            f"output_format='auto' chooses by the chat template, which {type(llm).__name__} does not tell: name the dialect, "
            "such as 'hermes', or pass {'type': 'auto', 'chat_template': …}"
        )
    # What the model itself takes out of its text is not to be looked for there.
    separated = {"reasoning": "none", "reasoning_started": False} if capabilities_of(llm).reasoning else {}
    return {"chat_template": template, **separated, **arguments}


def _message(item: Any, sender: str | None = "user") -> AgentMessage:
    if isinstance(item, AgentMessage):
        return item
    if isinstance(item, tuple) and len(item) >= 2:  # (status, text so far), as lagent 0.5 streams
        return AgentMessage(item[1], sender=sender or "", stream_state=item[0])
    return AgentMessage(item, sender=sender or "")
