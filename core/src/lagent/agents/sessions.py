"""Sessions of an agent: one call at a time in each, many side by side, and none kept for ever."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from lagent.errors import ConfigurationError, SessionBusyError
from lagent.flow import Call, Flow, arun, run
from lagent.schema import SessionId

if TYPE_CHECKING:
    from lagent.agents.agent import Agent

__all__ = ["Atomic", "SessionHandle", "Sessions"]

OnBusy = Literal["wait", "reject"]


class _Turn:
    """A session whose call is running: by whom, and who waits."""

    __slots__ = ("holder", "waiting")

    def __init__(self, holder: tuple[int, int]) -> None:
        self.holder = holder
        self.waiting: deque[tuple[Future[None], tuple[int, int]]] = deque()


class Sessions:
    """Lets the calls of one session in one after the other, in the order of their arrival, from threads and tasks alike.

    Args:
        on_busy: what a call does that meets another of its session: ``"wait"`` or ``"reject"``.
        max_sessions: how many sessions stay in the process; the least recently used go first. ``None`` for any number.
        idle_seconds: how long a session stays that is not used. ``None`` for as long as the process.
    """

    def __init__(self, on_busy: OnBusy = "wait", max_sessions: int | None = None, idle_seconds: float | None = None) -> None:
        if on_busy not in ("wait", "reject"):
            raise ConfigurationError(f"on_busy must be 'wait' or 'reject', not {on_busy!r}")
        if max_sessions is not None and max_sessions < 1:
            raise ConfigurationError(f"max_sessions must be at least 1, not {max_sessions}")
        if idle_seconds is not None and idle_seconds <= 0:
            raise ConfigurationError(f"idle_seconds must be above 0, not {idle_seconds}")
        self.on_busy, self.max_sessions, self.idle_seconds = on_busy, max_sessions, idle_seconds
        self._mutex = threading.Lock()
        self._running: dict[SessionId, _Turn] = {}
        self._used: OrderedDict[SessionId, float] = OrderedDict()

    @property
    def limited(self) -> bool:
        """Whether sessions are closed by themselves."""
        return self.max_sessions is not None or self.idle_seconds is not None

    def enter(self, session_id: SessionId, name: str, on_busy: OnBusy | None = None) -> Flow[None]:
        """Wait until no other call of the session is running; :meth:`leave` has to follow.

        Args:
            session_id: the session.
            name: the agent's name, for the error.
            on_busy: overrides the policy of the agent.

        Raises:
            SessionBusyError: another call is running, and this one may not wait, or would wait for itself.
        """
        me = _who()
        with self._mutex:
            turn = self._running.get(session_id)
            if turn is None:
                self._running[session_id] = _Turn(me)
                return
            if turn.holder == me:
                raise SessionBusyError(
                    f"agent {name!r} was called for session {session_id!r} while the same thread or task is still in a call of that "
                    "session: finish or close its stream first, or use another session_id for the inner call"
                )
            if (on_busy or self.on_busy) == "reject":
                raise SessionBusyError(
                    f"session {session_id!r} of agent {name!r} is busy with another call: wait for it, or create the agent with "
                    "on_busy='wait'"
                )
            mine: Future[None] = Future()
            turn.waiting.append((mine, me))
        try:
            yield Call(lambda: mine)
        except BaseException:
            with self._mutex:
                granted = mine.done() and not mine.cancelled()
                if not granted:
                    mine.cancel()
            if granted:
                self.leave(session_id)
            raise

    def try_enter(self, session_id: SessionId) -> bool:
        """:meth:`enter` if nothing has to be waited for; tells whether that was so."""
        with self._mutex:
            if session_id in self._running:
                return False
            self._running[session_id] = _Turn(_who())
            return True

    def leave(self, session_id: SessionId) -> None:
        """End the call that :meth:`enter` let in, and let the next one in."""
        with self._mutex:
            turn = self._running[session_id]
            while turn.waiting:
                future, turn.holder = turn.waiting.popleft()
                if future.set_running_or_notify_cancel():
                    future.set_result(None)
                    return
            del self._running[session_id]
            if self.limited:
                self._used[session_id] = time.monotonic()
                self._used.move_to_end(session_id)

    @contextmanager
    def hold(self, session_id: SessionId, name: str) -> Iterator[None]:
        """Keep calls of the session out during a synchronous block.

        Raises:
            SessionBusyError: a call is running that cannot be waited for here, since waiting would stop its event loop.
        """
        if session_id in self._running and _who()[1]:
            raise SessionBusyError(f"session {session_id!r} of agent {name!r} is busy with a call: await its end first")
        run(self.enter(session_id, name))
        try:
            yield
        finally:
            self.leave(session_id)

    def forget(self, session_id: SessionId) -> None:
        """Take a session off the list of those that are kept."""
        with self._mutex:
            self._used.pop(session_id, None)

    def expired(self, session_id: SessionId) -> list[SessionId]:
        """The sessions to close now that ``session_id`` is used: those idle too long, then the least recently used beyond the limit."""
        if not self._used:
            return []
        with self._mutex:
            oldest = time.monotonic() - (self.idle_seconds or 0)
            kept = len(self._used) + (session_id not in self._used)
            surplus = kept - self.max_sessions if self.max_sessions is not None else 0
            expired = []
            for known, used in self._used.items():
                if surplus <= 0 and (self.idle_seconds is None or used > oldest):
                    break
                if known != session_id and known not in self._running:
                    expired.append(known)
                    surplus -= 1
            return expired


def _who() -> tuple[int, int]:
    """The thread and, if there is one, the task that is running."""
    loop = asyncio._get_running_loop()
    return threading.get_ident(), id(asyncio.current_task(loop)) if loop is not None else 0


class Atomic:
    """Undoes what all agents of a tree recorded in a session if the block, ``with`` or ``async with``, ends with an exception."""

    def __init__(self, agent: Agent, session_id: SessionId) -> None:
        self._agent, self._session_id = agent, session_id
        self._marks: list[tuple[Any, Any]] = []

    def __enter__(self) -> None:
        run(self._mark())

    def __exit__(self, error: object, *_: object) -> None:
        run(self._restore(error))

    async def __aenter__(self) -> None:
        await arun(self._mark())

    async def __aexit__(self, error: object, *_: object) -> None:
        await arun(self._restore(error))

    def _mark(self) -> Flow[None]:
        for _, agent in self._agent.named_agents():
            if agent.memory is not None:
                memory = yield Call(agent.memory.open, (self._session_id,), blocking=agent.memory.store is not None)
                self._marks.append((memory, memory.mark()))

    def _restore(self, error: object) -> Flow[None]:
        if error is not None:
            for memory, mark in self._marks:
                yield Call(memory.restore, (mark,), blocking=memory.blocking)


class SessionHandle:
    """One session of an agent: ``with agent.session("user-42") as s: s("…")``. Leaving the block closes the session.

    Attributes:
        agent: the agent.
        session_id: the session.
    """

    def __init__(self, agent: Agent, session_id: SessionId) -> None:
        self.agent, self.session_id = agent, session_id

    def __call__(self, *message: Any, **kwargs: Any) -> Any:
        """Call the agent in this session."""
        return self.agent(*message, session_id=self.session_id, **kwargs)

    @property
    def memory(self) -> Any:
        """The agent's memory of this session, or ``None``."""
        return self.agent.memory and self.agent.memory.get(self.session_id)

    def atomic(self) -> Atomic:
        """See :meth:`Agent.atomic`."""
        return self.agent.atomic(self.session_id)

    def state_dict(self) -> dict[str, Any]:
        """See :meth:`Agent.state_dict`."""
        return self.agent.state_dict(self.session_id)

    def load_state_dict(self, state: Any, strict: bool = True) -> Any:
        """See :meth:`Agent.load_state_dict`."""
        return self.agent.load_state_dict(state, self.session_id, strict=strict)

    def reset(self, keypath: str | None = None, recursive: bool = False) -> None:
        """See :meth:`Agent.reset`."""
        self.agent.reset(self.session_id, keypath=keypath, recursive=recursive)

    def close(self) -> None:
        """See :meth:`Agent.close_session`."""
        self.agent.close_session(self.session_id)

    async def aclose(self) -> None:
        """See :meth:`Agent.aclose_session`."""
        await self.agent.aclose_session(self.session_id)

    def __enter__(self) -> SessionHandle:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    async def __aenter__(self) -> SessionHandle:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.aclose()
