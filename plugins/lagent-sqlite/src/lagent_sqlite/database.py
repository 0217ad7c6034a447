"""The SQLite file: opening it durably, keeping its schema current, sharing it between threads and processes."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from lagent.errors import StoreError

__all__ = ["APPLICATION_ID", "MIGRATIONS", "Database"]

APPLICATION_ID = 0x6C61676E
"""Marks a file as ours in its header, so that the database of another application is never written to."""

MIGRATIONS: list[tuple[str, ...]] = [
    (
        """
        CREATE TABLE sessions (
            id INTEGER PRIMARY KEY,
            agent TEXT NOT NULL,
            session TEXT NOT NULL,  -- as JSON, which tells 1 from "1"
            epoch INTEGER NOT NULL,  -- the number of removals before it began
            updated REAL NOT NULL,  -- seconds since 1970
            UNIQUE (agent, session)
        )
        """,
        """
        CREATE TABLE messages (
            session_id INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
            place INTEGER NOT NULL,
            message TEXT NOT NULL,  -- as JSON
            PRIMARY KEY (session_id, place)
        )
        """,
        "CREATE INDEX sessions_by_age ON sessions (updated)",
        # Counted over all sessions, so that one that was removed and began anew has another epoch than before.
        "CREATE TABLE removals (count INTEGER NOT NULL)",
        "INSERT INTO removals VALUES (0)",
        "CREATE TRIGGER count_removals AFTER DELETE ON sessions BEGIN UPDATE removals SET count = count + 1; END",
        f"PRAGMA application_id = {APPLICATION_ID}",
    ),
]
"""The statements that lead from each version of the schema to the next; version 0 is an empty file."""

_CURES = {
    "locked": "another process is writing for longer than the timeout; end it, or pass a larger timeout",
    "disk is full": "free some disk space",
    "disk I/O error": "check the disk, its free space and the limit on file sizes (ulimit -f)",
    "readonly": "make the file, its folder and the files beside it that end in -wal and -shm writable for this user",
    "unable to open": "make sure that its folder exists and is writable for this user",
    "not a database": "name another file; this one was left as it is",
    "malformed": "the file is damaged; restore it from a backup or an export",
}


class Database:
    """One connection to a file, used by one thread at a time, opened when it is first needed and after every :meth:`close`.

    Args:
        path: the file.
        timeout: seconds to wait for another process that is writing.
    """

    def __init__(self, path: Path, timeout: float) -> None:
        self.path = path
        self.timeout = timeout
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        _databases.add(self)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection; every statement sees the file at one moment.

        Raises:
            StoreError: the file cannot be used.
        """
        with self._lock:
            try:
                yield self._connection or self._open()
            except sqlite3.Error as error:
                self._disconnect()  # the next call begins afresh, with whatever was repaired meanwhile
                raise self._failure(
                    str(error), next((cure for sign, cure in _CURES.items() if sign in str(error)), "")
                ) from error

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """The connection within a transaction, which is on the disk when the block ends and undone when it raises.

        Raises:
            StoreError: the file cannot be used; nothing was changed.
        """
        with self.reading() as connection, _transaction(connection):
            yield connection

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    def __del__(self) -> None:
        self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=self.timeout, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA synchronous = FULL")  # a commit waits for the disk,
            connection.execute("PRAGMA fullfsync = ON")  # on macOS for what the disk has cached, too
            connection.execute("PRAGMA foreign_keys = ON")
            owner, version = _pragma(connection, "application_id"), _pragma(connection, "user_version")
            if (owner, version) != (APPLICATION_ID, len(MIGRATIONS)):
                self._migrate(connection)
            if _pragma(connection, "journal_mode") != "wal":
                self._write_ahead(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _migrate(self, connection: sqlite3.Connection) -> None:
        with _transaction(connection):
            owner, version = _pragma(connection, "application_id"), _pragma(connection, "user_version")
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if owner != APPLICATION_ID and (owner or version or tables):
                raise self._failure("it belongs to another application", "name a file of its own")
            if version > len(MIGRATIONS):
                raise self._failure(
                    f"its schema has version {version}, and this lagent-sqlite knows none above {len(MIGRATIONS)}",
                    "upgrade lagent-sqlite",
                )
            for statements in MIGRATIONS[version:]:
                for statement in statements:
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")

    def _write_ahead(self, connection: sqlite3.Connection) -> None:
        """Switch the file to a write-ahead log, for which SQLite itself does not wait while others have the file open."""
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
                break
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        if mode != "wal":
            raise self._failure("it cannot have a write-ahead log", "name a file on a local disk")

    def _failure(self, problem: str, cure: str) -> StoreError:
        return StoreError(f"cannot use the memory store {self.path}: {problem}" + (f"; {cure}" if cure else ""))


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # some errors have ended the transaction already
            connection.execute("ROLLBACK")
        raise


def _pragma(connection: sqlite3.Connection, name: str) -> Any:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


# A connection that is open while the process forks corrupts the file, even if the child opens one of its own
# (https://www.sqlite.org/howtocorrupt.html, 2.6). So none is: a fork waits for the running transaction, and both sides connect anew.

_databases: weakref.WeakSet[Database] = weakref.WeakSet()
_held: list[Database] = []


def _before_fork() -> None:
    for database in list(_databases):
        database._lock.acquire()
        database._disconnect()
        _held.append(database)


def _after_fork() -> None:
    while _held:
        _held.pop()._lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
