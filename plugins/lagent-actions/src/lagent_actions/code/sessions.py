"""The sessions of an action, found by their ids."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from attrs import define, field

from lagent.schema import SessionId
from lagent_actions.code.session import Outcome, Session, ended_text

__all__ = ["Sessions"]

_RESTARTED = "[The interpreter had ended and was started anew: the variables of earlier calls are gone.]\n"


@define
class _Place:
    """Where the session of an id lives, or will."""

    lock: threading.Lock = field(factory=threading.Lock)
    session: Session | None = None


class Sessions:
    """The sessions of an action, each started when it is needed and replaced when it has ended.

    Args:
        start: makes a session.
        most: how many there may be at once; ``None`` for any number.
    """

    def __init__(self, start: Callable[[], Session], most: int | None = None) -> None:
        self._start, self._most = start, most
        self._mutex = threading.Lock()
        self._places: dict[SessionId, _Place] = {}
        self._waiting: deque[tuple[SessionId, Future[None]]] = deque()
        self._finalizer = weakref.finalize(self, _close_all, self._places)

    def __len__(self) -> int:
        return len(self._places)

    def reserve(self, session_id: SessionId) -> Future[None]:
        """A place for a session; the result is there as soon as it has one, for which another may have to be closed."""
        future: Future[None] = Future()
        with self._mutex:
            self._waiting.append((session_id, future))
            self._admit()
        return future

    def execute(self, session_id: SessionId, code: str, seconds: float) -> Outcome:
        """Run code in a session, after what runs there already."""
        while True:
            self.reserve(session_id).result()
            place = self._places.get(session_id)
            if place is None:
                continue  # closed in between
            with place.lock:
                if self._places.get(session_id) is place:
                    return self._execute(place, session_id, code, seconds)

    def _execute(self, place: _Place, session_id: SessionId, code: str, seconds: float) -> Outcome:
        restarted = False
        if place.session is not None and not place.session.alive:
            place.session.close()
            place.session, restarted = None, True
        if place.session is None:
            place.session = self._start()
        if self._places.get(session_id) is not place:  # all sessions were closed while this one was being started
            place.session.close()
            place.session = None
            return Outcome(error=ended_text("it was closed", None), ended=True)
        outcome = place.session.execute(code, seconds)
        if outcome.ended:
            place.session = None  # the outcome has told so
        if restarted:
            outcome.text = _RESTARTED + outcome.text
        return outcome

    def interrupt(self, session_id: SessionId) -> None:
        """Interrupt what runs in a session."""
        place = self._places.get(session_id)
        if place is not None and (session := place.session) is not None:
            session.interrupt()

    def close(self, session_id: SessionId) -> None:
        """End a session, after what runs there."""
        place = self._places.get(session_id)
        if place is None:
            return
        with place.lock:
            if place.session is not None:
                place.session.close()
                place.session = None
            with self._mutex:
                if self._places.get(session_id) is place:
                    del self._places[session_id]
                self._admit()

    def close_all(self) -> None:
        """End all sessions, whatever runs there."""
        _close_all(self._places)
        with self._mutex:
            self._admit()

    def _admit(self) -> None:
        """Give places to those who wait, in their order, as long as there are any."""
        for _ in range(len(self._waiting)):
            session_id, future = self._waiting.popleft()
            if session_id not in self._places and self._most is not None and len(self._places) >= self._most:
                self._waiting.append((session_id, future))
            elif future.set_running_or_notify_cancel():
                self._places.setdefault(session_id, _Place())
                future.set_result(None)


def _close_all(places: dict[SessionId, _Place]) -> None:
    while places:
        with contextlib.suppress(KeyError):
            _, place = places.popitem()
            if (session := place.session) is not None:
                session.kill()
            with place.lock:  # which the call that was running gives up now
                if place.session is not None:
                    place.session.close()
                    place.session = None
