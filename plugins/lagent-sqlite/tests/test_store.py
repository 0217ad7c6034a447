"""The store beyond what every store has to do: its file, its errors, export and expiry."""

from __future__ import annotations

import copy
import json
import pickle
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from lagent.agents import Agent
from lagent.errors import ConfigurationError, ModelError, StateError, StoreError
from lagent.registry import create
from lagent_echo import EchoModel
from lagent_sqlite import SQLiteStore, database


@pytest.fixture
def store(tmp_path: Path) -> SQLiteStore:
    return SQLiteStore(tmp_path / "lagent.db")


def said(store: SQLiteStore, agent: str = "a", session_id: Any = 1) -> list[Any]:
    return [message["content"] for message in store.read(agent, session_id).messages]


# In agents ---------------------------------------------------------------------------------------------------------


def test_an_agent_remembers_beyond_its_life(tmp_path: Path) -> None:
    memory = {"type": "sqlite", "path": str(tmp_path / "lagent.db")}
    Agent(EchoModel(), memory=memory)("Hello!", session_id="会话")
    model = EchoModel()
    agent = Agent(model, memory=memory)
    agent("And again!", session_id="会话")
    assert [message["content"] for message in model.requests[0].messages] == ["Hello!", "Hello!", "And again!"]
    agent.reset("会话")
    assert Agent(EchoModel(), memory=memory).memory.sessions() == []


def test_a_call_that_fails_leaves_nothing_in_the_file(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "lagent.db")
    agent = Agent(EchoModel(["fine", ModelError("out of order")]), memory=store, name="a")
    agent("Hello!", session_id=1)
    with pytest.raises(ModelError):
        agent("Hello again!", session_id=1)
    assert said(store) == ["Hello!", "fine"]


def test_a_message_added_outside_a_call_is_kept(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "lagent.db")
    agent = Agent(EchoModel(), memory=store, name="a")
    agent.memory.add("A note.", session_id=1)
    assert said(SQLiteStore(store.path)) == ["A note."]
    agent("Hello!", session_id=1)
    assert said(SQLiteStore(store.path))[:2] == ["A note.", "Hello!"]


def test_the_registry_knows_it_by_name(tmp_path: Path) -> None:
    store = create("memory", {"type": "sqlite", "path": tmp_path / "lagent.db", "timeout": 1})
    assert isinstance(store, SQLiteStore)


# Path --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", ":memory:"])
def test_a_path_that_would_not_persist_is_refused(path: str) -> None:
    with pytest.raises(ConfigurationError, match="name a file"):
        SQLiteStore(path)


def test_path_is_fixed_when_the_store_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert SQLiteStore("~/lagent.db").path == tmp_path / "lagent.db"
    monkeypatch.chdir(tmp_path)
    store = SQLiteStore("lagent.db")
    monkeypatch.chdir("/")
    store.append("a", 1, [{"content": "here"}])
    assert (tmp_path / "lagent.db").exists()


def test_copies_share_the_file(store: SQLiteStore) -> None:
    store.append("a", 1, [{"content": "here"}])
    for other in (copy.deepcopy(store), pickle.loads(pickle.dumps(store))):
        assert said(other) == ["here"]
        assert repr(other) == repr(store)


# Files that cannot be used -----------------------------------------------------------------------------------------


def check_refused(path: Path, match: str) -> None:
    """Check that nothing can be done with a file, and that it stays as it is."""
    before = path.read_bytes() if path.exists() else None
    store = SQLiteStore(path, timeout=0.1)
    for method in (
        lambda: store.read("a", 1),
        lambda: store.append("a", 1, [{"content": "new"}]),
        lambda: store.replace("a", 1, [{"content": "new"}]),
        lambda: store.delete("a", 1),
        lambda: store.sessions("a"),
        lambda: store.expire(0),
        lambda: list(store.export()),
    ):
        with pytest.raises(StoreError, match=match) as caught:
            method()
        assert str(path) in str(caught.value)
    assert (path.read_bytes() if path.exists() else None) == before


def test_a_missing_folder(tmp_path: Path) -> None:
    check_refused(tmp_path / "missing" / "lagent.db", "make sure that its folder exists")
    assert not (tmp_path / "missing").exists()


def test_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path)
    with pytest.raises(StoreError, match=f"{tmp_path}: unable to open"):
        store.sessions("a")


@pytest.mark.parametrize("content", [b"Dear diary, ...", b"x" * 10_000], ids=["short", "long"])
def test_a_file_that_is_no_database(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "diary.txt"
    path.write_bytes(content)
    check_refused(path, "not a database; name another file")


def test_the_database_of_another_application(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "other.db")
    connection.execute("CREATE TABLE sessions (id)")
    connection.close()
    check_refused(tmp_path / "other.db", "belongs to another application; name a file of its own")


def test_a_newer_schema(store: SQLiteStore) -> None:
    store.append("a", 1, [{"content": "one"}])
    with store._database.writing() as connection:
        connection.execute("PRAGMA user_version = 99")
    store.close()
    check_refused(store.path, "version 99, and this lagent-sqlite knows none above 1; upgrade lagent-sqlite")


def test_a_damaged_file(store: SQLiteStore) -> None:
    store.append("a", 1, [{"content": "x" * 100_000}])
    store.close()
    data = bytearray(store.path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    store.path.write_bytes(data)
    with pytest.raises(StoreError, match="malformed; the file is damaged; restore it from a backup or an export"):
        store.append("a", 1, [{"content": "one more"}])


def test_a_lock_that_is_not_released(store: SQLiteStore) -> None:
    store.append("a", 1, [{"content": "one"}])
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    impatient = SQLiteStore(store.path, timeout=0.05)
    with pytest.raises(StoreError, match="locked; another process is writing for longer than the timeout"):
        impatient.append("a", 1, [{"content": "two"}])
    assert said(impatient) == ["one"], "reading does not wait for the writer"
    other.execute("ROLLBACK")
    other.close()
    impatient.append("a", 1, [{"content": "two"}])
    assert said(impatient) == ["one", "two"]


def test_what_is_no_json_is_refused_before_anything_is_written(store: SQLiteStore) -> None:
    with pytest.raises(TypeError, match="not JSON serializable"):
        store.append("a", 1, [{"content": "one"}, {"content": object()}])
    assert not store.path.exists()


# Schema ------------------------------------------------------------------------------------------------------------


def test_durability_settings(store: SQLiteStore) -> None:
    with store._database.reading() as connection:
        settings = {
            name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    assert settings == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


def test_older_files_are_migrated(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append("a", 1, [{"content": "one"}])
    store.close()
    newer = [*database.MIGRATIONS, ("ALTER TABLE sessions ADD COLUMN title TEXT", "UPDATE sessions SET title = agent || session")]
    monkeypatch.setattr(database, "MIGRATIONS", newer)
    assert said(store) == ["one"]
    store.append("a", 1, [{"content": "two"}])
    with store._database.reading() as connection:
        assert connection.execute("SELECT title FROM sessions").fetchall() == [("a1",)]
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
    assert said(SQLiteStore(store.path)) == ["one", "two"]


def test_a_migration_that_fails_changes_nothing(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append("a", 1, [{"content": "one"}])
    store.close()
    with monkeypatch.context() as patch:
        patch.setattr(database, "MIGRATIONS", [*database.MIGRATIONS, ("DELETE FROM sessions", "SELECT nonsense")])
        with pytest.raises(StoreError, match="no such column"):
            store.sessions("a")
    assert said(store) == ["one"]


# Export, import, expiry --------------------------------------------------------------------------------------------


def test_export_and_import(store: SQLiteStore, tmp_path: Path) -> None:
    store.append("a", 1, [{"content": "one"}, {"content": "漢字\x00\ud83d"}])
    store.append("a", "1", [{"content": "other"}])
    store.append("b", 1, [{"content": {"parts": [1, 2.5, None]}}])
    store.append("b", "gone", [{"content": "gone"}])
    store.delete("b", "gone")
    lines = [json.dumps(record) for record in store.export()]
    other = SQLiteStore(tmp_path / "other.db")
    other.append("a", 1, [{"content": "replaced"}])
    other.append("a", 2, [{"content": "kept"}])
    assert other.import_(map(json.loads, lines)) == 3
    assert list(map(json.loads, lines)) == [record for record in other.export() if record["session_id"] != 2]
    assert other.sessions("a") == [2, 1, "1"]
    assert said(other, "a", 1) == ["one", "漢字\x00\ud83d"]


def test_export_does_not_hold_up_writers(store: SQLiteStore) -> None:
    for session_id in range(3):
        store.append("a", session_id, [{"content": "one"}])
    exported = []
    for record in store.export():
        if not exported:
            store.append("a", 1, [{"content": "two"}])
            SQLiteStore(store.path, timeout=0.1).delete("a", 2)
        exported.append((record["session_id"], len(record["messages"])))
    assert exported == [(0, 1), (1, 2)]


@pytest.mark.parametrize(
    "record",
    [
        {"agent": "a", "session_id": 2},
        {"agent": "a", "session_id": 2, "updated": 0.0, "messages": "text"},
        {"agent": "a", "session_id": None, "updated": 0.0, "messages": []},
        "a line of text",
        None,
    ],
)
def test_import_of_something_else(store: SQLiteStore, record: Any) -> None:
    good = {"agent": "a", "session_id": 1, "updated": 0.0, "messages": [{"content": "one"}]}
    with pytest.raises(StateError, match=r"record 1 is not a session as export\(\) gives them"):
        store.import_([good, record])
    assert store.sessions("a") == [1]


def test_old_sessions_expire(store: SQLiteStore) -> None:
    hour_ago = time.time() - 3_600
    messages = [{"content": "one"}]
    store.import_({"agent": "a", "session_id": n, "updated": hour_ago, "messages": messages} for n in (1, 2))
    store.append("a", 2, [{"content": "two"}])
    store.append("b", 3, messages)
    reader = store.read("a", 1)
    assert store.expire(older_than=7_200) == 0
    assert store.expire(older_than=1_800) == 1
    assert store.sessions("a") == [2]
    assert store.sessions("b") == [3]
    assert store.read("a", 1, after=1, epoch=reader.epoch).epoch != reader.epoch, (
        "a reader does not see that its session has expired"
    )
    with store._database.reading() as connection:
        assert connection.execute("SELECT count(*) FROM messages").fetchone() == (3,)
