"""Agents whose memory is in SQLite lose no turn: processes are killed, write all at once, fork, and run out of disk."""

from __future__ import annotations

import os
import random
import resource
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lagent.agents import Agent
from lagent.errors import StoreError
from lagent.llms import BaseLLM, ModelRequest
from lagent.testing.processes import Forked
from lagent_echo import EchoModel
from lagent_sqlite import SQLiteStore

KILLS = 500
WRITERS = 2


class Parrot(BaseLLM):
    """Repeats the last message, and keeps nothing of a long conversation."""

    blocking = False

    def _complete(self, request: ModelRequest) -> Any:
        return request.messages[-1]["content"]


def agent_on(place: SQLiteStore | Path, model: BaseLLM | None = None) -> Agent:
    return Agent(model or EchoModel(), memory=SQLiteStore(place) if isinstance(place, Path) else place, name="Writer")


def turns_in(store: SQLiteStore, session_id: int | str) -> list[str]:
    """The inputs of the turns of a session, each of which has to be followed by its answer."""
    messages = store.read("Writer", session_id).messages
    inputs = [message["content"] for message in messages[::2]]
    assert [message["sender"] for message in messages] == ["user", "Writer"] * len(inputs)
    assert [message["content"].rpartition("\n")[2] for message in messages[1::2]] == [text.rpartition("\n")[2] for text in inputs]
    return inputs


def check_integrity(path: Path) -> None:
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()


@pytest.mark.timeout(400)
def test_turns_survive_the_death_of_their_process(tmp_path: Path) -> None:
    """Of every killed process, the turns whose calls had returned are there once, in order and whole, and at most one more."""
    path, chance = tmp_path / "lagent.db", random.Random(0)
    store, agent = SQLiteStore(path), agent_on(path)
    lives: dict[str, dict[int, int]] = {}  # by session: by life, the turns whose calls returned in it

    def working(session_id: str, life: int) -> Callable[[Callable[[], None]], None]:
        def work(returned: Callable[[], None]) -> None:
            turn = 0
            while True:
                agent(f"{'x' * 3_000}\n{life}:{turn}", session_id=session_id)
                returned()
                turn += 1

        return work

    def check(session_id: str) -> None:
        found = [text.rpartition("\n")[2] for text in turns_in(store, session_id)]
        expected = []
        for life, turns in lives[session_id].items():
            unreported = f"{life}:{turns}"  # stored, but killed before its call returned
            expected += [f"{life}:{turn}" for turn in range(turns)] + [unreported] * (unreported in found)
        assert found == expected

    for life in range(0, KILLS, WRITERS):
        sessions = [f"{writer} since {life // 20}" for writer in range(WRITERS)]
        running = [Forked(working(session_id, life)) for session_id in sessions]
        for session_id, process in zip(
            sessions, running, strict=True
        ):  # once the last is dead, none is left to help with recovery
            turns = process.wait_for_step() if chance.random() < 0.7 else 0  # some die before they have done anything
            time.sleep(chance.uniform(0, 0.005))
            lives.setdefault(session_id, {})[life] = turns + process.kill()
            check(session_id)
    store.close()
    for session_id in lives:
        check(session_id)
    assert set(store.sessions("Writer")) <= lives.keys()
    store.close()
    check_integrity(path)


@pytest.mark.timeout(400)
def test_processes_writing_at_once_lose_nothing(tmp_path: Path) -> None:
    path, processes, turns = tmp_path / "lagent.db", 8, 500

    def writing(writer: int) -> Callable[[Any], None]:
        def work(_: Any) -> None:
            agent = agent_on(path, Parrot())
            for turn in range(turns):
                agent(f"{writer}:{turn}", session_id=writer if turn % 5 else "shared")

        return work

    for process in [Forked(writing(writer)) for writer in range(processes)]:
        process.wait()
    store = SQLiteStore(path)
    shared = turns_in(store, "shared")
    assert len(shared) == processes * turns // 5
    for writer in range(processes):
        said = [f"{writer}:{turn}" for turn in range(turns)]
        assert [text for text in shared if text.startswith(f"{writer}:")] == said[::5]
        assert turns_in(store, writer) == [text for place, text in enumerate(said) if place % 5]
    store.close()
    check_integrity(path)


def test_processes_may_create_the_file_at_once(tmp_path: Path) -> None:
    for round_ in range(5):
        path = tmp_path / f"{round_}.db"

        def work(_: Any, path: Path = path) -> None:
            SQLiteStore(path).append("Writer", os.getpid(), [{"content": "here"}])

        for process in [Forked(work) for _ in range(8)]:
            process.wait()
        assert len(SQLiteStore(path).sessions("Writer")) == 8
        check_integrity(path)


def test_forks_may_go_on_with_the_store_of_their_parent(tmp_path: Path) -> None:
    """SQLite itself forbids it; a server that forks its workers after it has built its agents does it."""
    store, finished = SQLiteStore(tmp_path / "lagent.db"), threading.Event()
    writes = 0

    def write() -> None:
        nonlocal writes
        while not finished.is_set():
            store.append("Writer", "parent", [{"content": writes}])
            writes += 1

    def work(_: Any) -> None:
        for turn in range(20):
            store.append("Writer", os.getpid(), [{"content": turn}])

    thread = threading.Thread(target=write)
    thread.start()
    processes = [Forked(work) for _ in range(10)]
    for process in processes:
        process.wait()
    finished.set()
    thread.join()
    assert [message["content"] for message in store.read("Writer", "parent").messages] == list(range(writes))
    for process in processes:
        assert [message["content"] for message in store.read("Writer", process.pid).messages] == list(range(20))
    store.close()
    check_integrity(tmp_path / "lagent.db")


# Disks --------------------------------------------------------------------------------------------------------------


def fill(path: Path) -> list[str]:
    """Call an agent until its store fails; the inputs of the calls that returned."""
    agent, said = agent_on(path), []
    with pytest.raises(StoreError) as caught:
        while True:
            text = f"{'x' * 5_000}\n{len(said)}"
            agent(text)
            said.append(text)
    assert str(path) in str(caught.value)
    assert "disk" in str(caught.value)
    assert len(agent.memory.get_memory()) == 2 * len(said), "the agent remembers a turn that it could not store"
    return said


def check_full_and_freed(path: Path, free: Callable[[], None]) -> None:
    said = fill(path)
    assert said
    assert turns_in(SQLiteStore(path), 0) == said
    free()
    agent = agent_on(path)
    agent("There is room again.")
    assert turns_in(SQLiteStore(path), 0) == [*said, "There is room again."]
    check_integrity(path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("this user cannot mount a file system")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_full_disk(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(400_000))
    check_full_and_freed(small_disk / "lagent.db", ballast.unlink)


def test_limit_on_the_size_of_files(tmp_path: Path) -> None:
    def work(_: Any) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
        check_full_and_freed(tmp_path / "lagent.db", lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard)))

    Forked(work).wait()


NOBODY = 65_534


@pytest.mark.parametrize(("file_mode", "folder_mode"), [(0o444, 0o755), (0o644, 0o555), (0o444, 0o555)])
def test_read_only(file_mode: int, folder_mode: int) -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own folder may not be entered by others
        folder, path = Path(name), Path(name) / "lagent.db"
        store = SQLiteStore(path)
        agent_on(store)("Hello!")
        store.close()
        for place, mode in ((path, file_mode), (folder, folder_mode)):
            if os.geteuid() == 0:
                os.chown(place, NOBODY, NOBODY)
            place.chmod(mode)

        def work(_: Any) -> None:
            if os.geteuid() == 0:
                os.setuid(NOBODY)  # root may write everywhere
            for attempt in (lambda: agent_on(path)("Hello again!"), lambda: SQLiteStore(path).delete("Writer", 0)):
                with pytest.raises(StoreError, match=r"lagent\.db.*writable for this user"):
                    attempt()

        Forked(work).wait()
        folder.chmod(0o755)
        path.chmod(0o644)
        agent_on(path)("Hello again!")
        assert turns_in(SQLiteStore(path), 0) == ["Hello!", "Hello again!"]
