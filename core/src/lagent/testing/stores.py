"""The kit for memory stores."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lagent.memory.store import StoredMessages
from lagent.schema import SessionId
from lagent.testing.kit import Kit, value_of
from lagent.testing.processes import Forked

__all__ = ["MemoryStoreTests"]

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
_TEXTS = ("", "\x00", "a\nb", "'; DROP TABLE messages; --", "🙂é漢字\u200b", "\ud83d", "\\ud83d", "x" * 10_000)
_NAMES = ("", "a", "A", "a.b", "a:b", "a/b", "../a", "a%", "%", "*", "a b", "会话", "🙂", "x" * 500, "1", 1, -1, 0, "0", 10**30)


class MemoryStoreTests(Kit):
    """What every memory store has to do.

    Fixtures:
        store: a store that holds nothing yet.

    Override :meth:`reopen` if the store persists: only then is it tested that messages survive the object and the process, that
    several processes can write at once, and that a killed one leaves nothing half done. These tests fork.

    Attributes:
        large: the size of the largest message that is tried, in characters.
        many: how many messages the longest session of the tests has.
    """

    large: ClassVar[int] = 3_000_000
    many: ClassVar[int] = 3_000

    @pytest.fixture
    def store(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} needs a fixture 'store' that returns an empty store to test")

    def reopen(self, store: Any) -> Any:
        """Another object that works on the data of ``store``; it is called in other processes, too."""
        return None

    # For the tests

    def read(self, store: Any, agent: str = "a", session_id: SessionId = 1, **since: Any) -> StoredMessages:
        found = value_of(store.read, agent, session_id, **since)
        assert isinstance(found, StoredMessages)
        return found

    def messages(self, store: Any, agent: str = "a", session_id: SessionId = 1) -> list[dict[str, Any]]:
        found = self.read(store, agent, session_id)
        assert found.start == 0
        return found.messages

    def append(self, store: Any, *contents: Any, agent: str = "a", session_id: SessionId = 1) -> None:
        value_of(store.append, agent, session_id, [_message(content) for content in contents])

    def _turns(self, store: Any, agent: str, session_id: SessionId, writer: int, count: int) -> None:
        for turn in range(count):
            self.append(store, f"{writer}:{turn}:in", f"{writer}:{turn}:out", agent=agent, session_id=session_id)

    def _check_turns(self, messages: list[dict[str, Any]], turns: dict[int, int]) -> None:
        """Check that each writer's turns are there once, in their order, and each one's two messages side by side."""
        contents = [message["content"] for message in messages]
        inputs = [content.removesuffix(":in") for content in contents[::2]]
        assert [f"{turn}:out" for turn in inputs] == contents[1::2], "the messages of one append were torn apart"
        for writer, count in turns.items():
            own = [turn for turn in inputs if turn.startswith(f"{writer}:")]
            assert own == [f"{writer}:{turn}" for turn in range(count)], f"writer {writer} lost, doubled or swapped turns"
        assert len(inputs) == sum(turns.values())

    # Order, epochs

    def test_messages_come_back_in_order(self, store: Any) -> None:
        self.append(store, "one")
        self.append(store, "two", "three")
        assert self.messages(store) == [_message(text) for text in ("one", "two", "three")]

    def test_nothing_is_there_at_first(self, store: Any) -> None:
        assert self.messages(store) == []
        assert value_of(store.sessions, "a") == []

    def test_only_what_is_new_is_read(self, store: Any) -> None:
        self.append(store, "one", "two")
        epoch = self.read(store).epoch
        self.append(store, "three")
        found = self.read(store, after=2, epoch=epoch)
        assert (found.epoch, found.start, found.messages) == (epoch, 2, [_message("three")])
        assert self.read(store, after=3, epoch=epoch).messages == []

    def test_a_stale_reader_gets_everything(self, store: Any) -> None:
        self.append(store, "one", "two")
        epoch = self.read(store).epoch
        value_of(store.replace, "a", 1, [_message("new"), _message("newer"), _message("newest")])
        found = self.read(store, after=2, epoch=epoch)
        assert found.epoch != epoch, "replace() did not begin a new epoch"
        assert (found.start, [message["content"] for message in found.messages]) == (0, ["new", "newer", "newest"])

    def test_a_session_that_begins_again_has_another_epoch(self, store: Any) -> None:
        self.append(store, "one")
        epoch = self.read(store).epoch
        value_of(store.delete, "a", 1)
        assert self.read(store, after=1, epoch=epoch).epoch != epoch, "a reader does not see that the session was deleted"
        self.append(store, "other")
        found = self.read(store, after=1, epoch=epoch)
        assert (found.start, found.messages) == (0, [_message("other")])

    # Replacing and deleting

    def test_replace(self, store: Any) -> None:
        self.append(store, "one", "two")
        value_of(store.replace, "a", 1, [_message("new")])
        self.append(store, "newer")
        assert self.messages(store) == [_message("new"), _message("newer")]
        value_of(store.replace, "a", 1, [])
        assert self.messages(store) == []

    def test_replace_of_nothing(self, store: Any) -> None:
        value_of(store.replace, "a", 1, [_message("new")])
        assert self.messages(store) == [_message("new")]

    def test_delete(self, store: Any) -> None:
        self.append(store, "one")
        value_of(store.delete, "a", 1)
        value_of(store.delete, "a", 1)
        assert self.messages(store) == []

    # Listing, isolation

    def test_sessions_are_listed(self, store: Any) -> None:
        for session_id in (1, "1", "two", "three"):
            self.append(store, "text", session_id=session_id)
        self.append(store, "text", agent="b", session_id="four")
        value_of(store.delete, "a", "two")
        value_of(store.replace, "a", "three", [])
        value_of(store.append, "a", "five", [])
        listed = value_of(store.sessions, "a")
        assert sorted(map(repr, listed)) == ["'1'", "1"]
        assert value_of(store.sessions, "b") == ["four"]
        assert value_of(store.sessions, "c") == []

    def test_sessions_and_agents_do_not_see_each_other(self, store: Any) -> None:
        keys = [(str(agent), session_id) for agent in _NAMES[:8] for session_id in _NAMES]
        for place, (agent, session_id) in enumerate(keys):
            self.append(store, place, agent=agent, session_id=session_id)
        value_of(store.delete, *keys[0])
        value_of(store.replace, *keys[1], [_message("new")])
        for place, (agent, session_id) in list(enumerate(keys))[2:]:
            found = self.messages(store, agent, session_id)
            assert found == [_message(place)], f"session {session_id!r} of agent {agent!r} holds what another has written"
        assert set(value_of(store.sessions, keys[0][0])) == set(_NAMES[1:])

    # Contents

    @pytest.mark.parametrize("text", _TEXTS, ids=range(len(_TEXTS)))
    def test_texts_come_back_as_they_were(self, store: Any, text: str) -> None:
        self.append(store, text, {text[:100]: [text]})
        assert self.messages(store) == [_message(text), _message({text[:100]: [text]})]

    def test_values_come_back_as_they_were(self, store: Any) -> None:
        @settings(max_examples=30, deadline=None)
        @given(st.lists(_JSON, min_size=1, max_size=3))
        def check(contents: list[Any]) -> None:
            value_of(store.replace, "a", 1, [])
            self.append(store, *contents)
            assert self.messages(store) == [_message(content) for content in contents]

        check()

    def test_a_large_message(self, store: Any) -> None:
        text = "漢x" * (self.large // 2)
        self.append(store, text)
        assert self.messages(store)[0]["content"] == text

    def test_a_long_session(self, store: Any) -> None:
        value_of(store.append, "a", 1, [_message(place) for place in range(self.many)])
        self.append(store, "last")
        assert [m["content"] for m in self.messages(store)] == [*range(self.many), "last"]

    def test_what_was_given_and_returned_is_not_shared(self, store: Any) -> None:
        given_messages = [_message(["part"])]
        value_of(store.append, "a", 1, given_messages)
        given_messages[0]["content"].append("changed")
        self.messages(store)[0]["content"].append("changed, too")
        assert self.messages(store) == [_message(["part"])]

    # Atomicity

    def test_what_cannot_be_stored_changes_nothing(self, store: Any) -> None:
        self.append(store, "one")
        before = self.read(store)
        for method in (store.append, store.replace):
            try:
                value_of(method, "a", 1, [_message("two"), _message(object())])
            except Exception:
                assert self.read(store) == before, f"{method.__name__}() raised, and has changed something all the same"
            else:
                pytest.skip("the store takes objects of any kind")

    def test_readers_never_see_half_a_change(self, store: Any) -> None:
        states = [[_message(letter)] * size for letter, size in (("a", 3), ("b", 40))]
        value_of(store.replace, "a", 1, states[0])
        finished = threading.Event()

        def write() -> None:
            for turn in range(40):
                value_of(store.replace, "a", 1, states[turn % 2])
            finished.set()

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            while not finished.is_set() and not writing.done():
                assert self.messages(store) in states, "a reader saw a replacement half done"
            writing.result()

    # Threads, processes, crashes

    def test_threads_lose_nothing(self, store: Any) -> None:
        with ThreadPoolExecutor(8) as pool:
            jobs = [pool.submit(self._turns, store, "a", "shared", writer, 25) for writer in range(4)]
            jobs += [pool.submit(self._turns, store, "a", writer, writer, 25) for writer in range(4)]
            for job in jobs:
                job.result()
        self._check_turns(self.messages(store, "a", "shared"), dict.fromkeys(range(4), 25))
        for writer in range(4):
            self._check_turns(self.messages(store, "a", writer), {writer: 25})

    def test_messages_outlive_the_object(self, store: Any) -> None:
        self.append(store, "one")
        other = self.reopen(store)
        self.skip_unless(other is not None, "reopen() is not overridden")
        assert self.messages(other) == [_message("one")]
        value_of(store.close)
        self.append(other, "two")
        assert self.messages(store) == [_message("one"), _message("two")], "a closed store cannot be used again"
        value_of(other.close)

    def test_processes_lose_nothing(self, store: Any) -> None:
        self._can_fork(store)

        def work(writer: int) -> None:
            own = self.reopen(store)
            self._turns(own, "a", "shared", writer, 25)
            self._turns(own, "a", writer, writer, 25)

        self.messages(store, "a", "shared")
        processes = [Forked(lambda _, writer=writer: work(writer)) for writer in range(4)]  # type: ignore[misc]
        self._turns(store, "a", "shared", 4, 25)
        for process in processes:
            process.wait()
        self._check_turns(self.messages(store, "a", "shared"), dict.fromkeys(range(5), 25))
        for writer in range(4):
            self._check_turns(self.messages(store, "a", writer), {writer: 25})

    def test_a_killed_process_leaves_whole_turns(self, store: Any) -> None:
        self._can_fork(store)

        def work(completed: Callable[[], None]) -> None:
            own, turn = self.reopen(store), 0
            while True:
                self.append(own, f"{turn}:in", "x" * 20_000, f"{turn}:out")
                completed()
                turn += 1

        for round_ in range(10):
            value_of(store.replace, "a", 1, [])
            process = Forked(work)
            steps = process.wait_for_step()
            time.sleep(0.003 * round_)
            steps += process.kill()
            contents = [message["content"] for message in self.messages(store)]
            turns = len(contents) // 3
            assert contents[::3] == [f"{turn}:in" for turn in range(turns)]
            assert contents[2::3] == [f"{turn}:out" for turn in range(turns)], "half a turn of a killed process was kept"
            assert steps <= turns <= steps + 1, f"of {steps} stored turns {turns} are there after the process was killed"

    def _can_fork(self, store: Any) -> None:
        self.skip_unless(self.reopen(store) is not None, "reopen() is not overridden")
        self.skip_unless(hasattr(os, "fork"), "this system cannot fork")

    # Cost

    def test_a_turn_does_not_cost_more_in_a_long_session(self, store: Any) -> None:
        def turn(count: int) -> Callable[[], None]:
            value_of(store.replace, "a", count, [_message("x" * 200)] * count)
            epoch, after = self.read(store, session_id=count).epoch, count

            def run() -> None:
                nonlocal after
                self.append(store, "input", "output", session_id=count)
                assert len(self.read(store, session_id=count, after=after, epoch=epoch).messages) == 2
                after += 2

            return run

        short = min(map(_seconds, [turn(30)] * 20))
        long, run = float("inf"), turn(3_000)  # only now, so that a store that reads all it holds is seen as well
        for _ in range(60):
            long = min(long, _seconds(run))
            if long < 8 * short:
                return
        pytest.fail(f"a turn takes {long / short:.0f} times as long with 3,000 messages as with 30: it must not depend on them")


def _message(content: Any) -> dict[str, Any]:
    return {"content": content, "sender": "user", "extra_info": {"n": 1}}


def _seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start
