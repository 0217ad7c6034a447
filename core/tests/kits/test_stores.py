"""The kit for memory stores: a correct store passes, and each broken one is caught by the test that is meant for it."""

from __future__ import annotations

import contextlib
import copy
import fcntl
import itertools
import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import pytest

from lagent.memory import MemoryStore, StoredMessages
from lagent.schema import SessionId
from lagent.testing import MemoryStoreTests

Messages = Sequence[dict[str, Any]]


class LogStore(MemoryStore):
    """Writes every change as a line of a file, and keeps what the lines say in the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        self.read_to = 0
        self.lines = 0
        self.known: dict[tuple[str, SessionId], tuple[int, list[str]]] = {}

    @contextlib.contextmanager
    def current(self) -> Iterator[IO[bytes]]:
        with self.lock, self.path.open("ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self.catch_up(file)
            yield file

    def catch_up(self, file: IO[bytes]) -> None:
        file.seek(self.read_to)
        for line in file:
            if not line.endswith(b"\n"):
                file.truncate(self.read_to)
                break
            self.read_to += len(line)
            self.apply(*json.loads(line))

    def apply(self, agent: str, session_id: SessionId, anew: bool, messages: list[str]) -> None:
        self.lines += 1
        if anew:
            self.known[agent, session_id] = self.lines, messages
        else:
            self.known.setdefault((agent, session_id), (0, []))[1].extend(messages)

    def write(self, agent: str, session_id: SessionId, messages: Messages, anew: bool) -> None:
        change = json.dumps([agent, session_id, anew, [json.dumps(message) for message in messages]])
        with self.current() as file:
            file.write(change.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
            self.catch_up(file)

    def read(self, agent: str, session_id: SessionId, after: int = 0, epoch: int | None = None) -> StoredMessages:
        with self.current():
            current, messages = self.known.get((agent, session_id), (0, []))
            start = after if epoch == current else 0
            return StoredMessages(current, start, [json.loads(message) for message in messages[start:]])

    def append(self, agent: str, session_id: SessionId, messages: Messages) -> None:
        self.write(agent, session_id, messages, anew=False)

    def replace(self, agent: str, session_id: SessionId, messages: Messages) -> None:
        self.write(agent, session_id, messages, anew=True)

    def delete(self, agent: str, session_id: SessionId) -> None:
        self.write(agent, session_id, [], anew=True)

    def sessions(self, agent: str) -> list[SessionId]:
        with self.current():
            return [session_id for (owner, session_id), (_, messages) in self.known.items() if owner == agent and messages]


class AsyncLogStore(LogStore):
    blocking = False

    async def read(self, *args: Any, **kwargs: Any) -> StoredMessages:  # type: ignore[override]
        return super().read(*args, **kwargs)

    async def append(self, *args: Any) -> None:  # type: ignore[override]
        super().append(*args)


class TestLogStore(MemoryStoreTests):
    @pytest.fixture
    def store(self, tmp_path: Path) -> LogStore:
        return LogStore(tmp_path / "log")

    def reopen(self, store: LogStore) -> LogStore:
        return type(store)(store.path)


class TestAsyncLogStore(TestLogStore):
    @pytest.fixture
    def store(self, tmp_path: Path) -> LogStore:
        return AsyncLogStore(tmp_path / "log")


# Broken stores -----------------------------------------------------------------------------------------------------


class Reverses(LogStore):
    def apply(self, agent: str, session_id: SessionId, anew: bool, messages: list[str]) -> None:
        super().apply(agent, session_id, anew, messages[::-1])


class RaisesForTheUnknown(LogStore):
    def read(self, agent: str, session_id: SessionId, after: int = 0, epoch: int | None = None) -> StoredMessages:
        super().read(agent, session_id)
        return super().read(agent, session_id, after, epoch) if self.known[agent, session_id] else StoredMessages(0)


class ReadsEverything(LogStore):
    def read(self, agent: str, session_id: SessionId, after: int = 0, epoch: int | None = None) -> StoredMessages:
        found = super().read(agent, session_id)
        return StoredMessages(found.epoch, after if epoch == found.epoch else 0, found.messages)


class KeepsTheEpoch(LogStore):
    def apply(self, agent: str, session_id: SessionId, anew: bool, messages: list[str]) -> None:
        super().apply(agent, session_id, anew, messages)
        self.known[agent, session_id] = 0, self.known[agent, session_id][1]


class ForgetsTheEpoch(LogStore):
    def apply(self, agent: str, session_id: SessionId, anew: bool, messages: list[str]) -> None:
        super().apply(agent, session_id, anew, messages)
        if not self.known[agent, session_id][1]:
            del self.known[agent, session_id]


class ReplacesNothing(LogStore):
    def replace(self, agent: str, session_id: SessionId, messages: Messages) -> None:
        self.append(agent, session_id, messages)


class ReplacesOnlyTheKnown(LogStore):
    def replace(self, agent: str, session_id: SessionId, messages: Messages) -> None:
        if self.sessions(agent):
            super().replace(agent, session_id, messages)


class DeletesOnlyTheKnown(LogStore):
    def delete(self, agent: str, session_id: SessionId) -> None:
        if session_id not in self.sessions(agent):
            raise KeyError(session_id)
        super().delete(agent, session_id)


class ListsEmptySessions(LogStore):
    def sessions(self, agent: str) -> list[SessionId]:
        with self.current():
            return [session_id for owner, session_id in self.known if owner == agent]


class TakesNumbersForTexts(LogStore):
    def apply(self, agent: str, session_id: SessionId, anew: bool, messages: list[str]) -> None:
        super().apply(agent, str(session_id), anew, messages)

    def read(self, agent: str, session_id: SessionId, after: int = 0, epoch: int | None = None) -> StoredMessages:
        return super().read(agent, str(session_id), after, epoch)


class ChangesMessages(LogStore):
    """Passes every message through :meth:`change`."""

    def write(self, agent: str, session_id: SessionId, messages: Messages, anew: bool) -> None:
        super().write(agent, session_id, [json.loads(self.change(json.dumps(message))) for message in messages], anew)

    def change(self, message: str) -> str:
        raise NotImplementedError


class DropsNul(ChangesMessages):
    def change(self, message: str) -> str:
        return message.replace(r"\u0000", "")


class KeepsNoNull(ChangesMessages):
    def change(self, message: str) -> str:
        return message.replace("null", '""')


class TruncatesMessages(LogStore):
    def write(self, agent: str, session_id: SessionId, messages: Messages, anew: bool) -> None:
        super().write(agent, session_id, [{**m, "content": _cut(m["content"])} for m in messages], anew)


def _cut(content: Any) -> Any:
    return content[:1_000_000] if isinstance(content, str) else content


class KeepsTheLastThousand(LogStore):
    def apply(self, agent: str, session_id: SessionId, anew: bool, messages: list[str]) -> None:
        super().apply(agent, session_id, anew, messages)
        del self.known[agent, session_id][1][:-1_000]


class InTheProcess(LogStore):
    """Keeps the very objects that it is given."""

    def write(self, agent: str, session_id: SessionId, messages: Messages, anew: bool) -> None:
        self.apply(agent, session_id, anew, list(messages))  # type: ignore[arg-type]

    def read(self, agent: str, session_id: SessionId, after: int = 0, epoch: int | None = None) -> StoredMessages:
        current, messages = self.known.get((agent, session_id), (0, []))
        return StoredMessages(current, 0, list(messages))  # type: ignore[arg-type]


class WritesOneByOne(LogStore):
    def append(self, agent: str, session_id: SessionId, messages: Messages) -> None:
        for message in messages:
            super().append(agent, session_id, [message])


class ReplacesInTwoSteps(LogStore):
    def replace(self, agent: str, session_id: SessionId, messages: Messages) -> None:
        self.delete(agent, session_id)
        time.sleep(0.001)
        self.append(agent, session_id, messages)


class WritesWithoutLocking(LogStore):
    """Reads, adds and writes back, and lets others in between."""

    def append(self, agent: str, session_id: SessionId, messages: Messages) -> None:
        before = copy.deepcopy(self.read(agent, session_id).messages)
        time.sleep(0.0001)
        self.replace(agent, session_id, [*before, *messages])


class TrustsWhatItKnows(LogStore):
    """Holds the file to be its own once it has read it."""

    def catch_up(self, file: IO[bytes]) -> None:
        if self.read_to == 0:
            super().catch_up(file)

    def write(self, agent: str, session_id: SessionId, messages: Messages, anew: bool) -> None:
        super().write(agent, session_id, messages, anew)
        self.apply(agent, session_id, anew, [json.dumps(message) for message in messages])


class WritesLater(LogStore):
    """Keeps up to five changes back before it writes them."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.kept: list[Any] = []

    def write(self, agent: str, session_id: SessionId, messages: Messages, anew: bool) -> None:
        self.kept.append((agent, session_id, list(messages), anew))
        if anew or len(self.kept) > 5:
            self.close()

    def read(self, agent: str, session_id: SessionId, after: int = 0, epoch: int | None = None) -> StoredMessages:
        self.close()
        return super().read(agent, session_id, after, epoch)

    def close(self) -> None:
        kept, self.kept = self.kept, []
        for change in kept:
            super().write(*change)


class ReadsAllAgain(LogStore):
    def catch_up(self, file: IO[bytes]) -> None:
        self.forget()
        super().catch_up(file)


BROKEN = [
    (Reverses, "test_messages_come_back_in_order"),
    (RaisesForTheUnknown, "test_nothing_is_there_at_first"),
    (ReadsEverything, "test_only_what_is_new_is_read"),
    (KeepsTheEpoch, "test_a_stale_reader_gets_everything"),
    (ForgetsTheEpoch, "test_a_session_that_begins_again_has_another_epoch"),
    (ReplacesNothing, "test_replace"),
    (ReplacesOnlyTheKnown, "test_replace_of_nothing"),
    (DeletesOnlyTheKnown, "test_delete"),
    (ListsEmptySessions, "test_sessions_are_listed"),
    (TakesNumbersForTexts, "test_sessions_and_agents_do_not_see_each_other"),
    (DropsNul, "test_texts_come_back_as_they_were"),
    (KeepsNoNull, "test_values_come_back_as_they_were"),
    (TruncatesMessages, "test_a_large_message"),
    (KeepsTheLastThousand, "test_a_long_session"),
    (InTheProcess, "test_what_was_given_and_returned_is_not_shared"),
    (WritesOneByOne, "test_what_cannot_be_stored_changes_nothing"),
    (ReplacesInTwoSteps, "test_readers_never_see_half_a_change"),
    (WritesWithoutLocking, "test_threads_lose_nothing"),
    (InTheProcess, "test_messages_outlive_the_object"),
    (TrustsWhatItKnows, "test_processes_lose_nothing"),
    (WritesOneByOne, "test_a_killed_process_leaves_whole_turns"),
    (WritesLater, "test_a_killed_process_leaves_whole_turns"),
    (ReadsAllAgain, "test_a_turn_does_not_cost_more_in_a_long_session"),
]


@pytest.mark.parametrize(("store", "test"), BROKEN, ids=lambda value: getattr(value, "__name__", value))
def test_a_broken_store_is_caught_by_the_test_meant_for_it(store: type[LogStore], test: str, caught: Any, tmp_path: Path) -> None:
    numbers = itertools.count()
    assert caught(TestLogStore, test, lambda: store(tmp_path / str(next(numbers))))


def test_every_test_of_the_kit_catches_something() -> None:
    assert {name for name in dir(MemoryStoreTests) if name.startswith("test_")} == {test for _, test in BROKEN}
