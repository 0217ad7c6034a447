"""The memory store on SQLite."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lagent.errors import ConfigurationError, StateError
from lagent.memory.store import MemoryStore, StoredMessages
from lagent.schema import SessionId
from lagent_sqlite.database import Database

__all__ = ["SQLiteStore"]

Message = dict[str, Any]

_READ = """
    SELECT coalesce(s.epoch, r.count), m.message FROM removals r
    LEFT JOIN sessions s ON s.agent = :agent AND s.session = :session
    LEFT JOIN messages m ON m.session_id = s.id AND m.place >= CASE WHEN s.epoch = :epoch THEN :after ELSE 0 END
    ORDER BY m.place
"""


class SQLiteStore(MemoryStore):
    """Keeps messages in one SQLite file, for any number of threads and processes of one machine.

    What a method has written is on the disk when it returns: it survives the end of the process and of the machine. A turn costs
    time for its own messages, however many are stored. The file is created when it is first used; its folder has to exist.

    Args:
        path: the file. It has to be on a local disk, since SQLite shares memory beside it; ``~`` is the home folder.
        timeout: how many seconds to wait while another process writes.

    Raises:
        ConfigurationError: ``path`` names no file.

    Every method raises :class:`StoreError` if the file cannot be used, and has changed nothing then.
    """

    def __init__(self, path: str | os.PathLike[str] = "lagent.db", timeout: float = 30.0) -> None:
        if str(path) in ("", ":memory:"):
            raise ConfigurationError(f"path={str(path)!r} would not outlive the process: name a file, or leave the store out")
        self._database = Database(Path(path).expanduser().absolute(), timeout)

    @property
    def path(self) -> Path:
        """The file."""
        return self._database.path

    def __repr__(self) -> str:
        return f"SQLiteStore({str(self.path)!r})"

    def __reduce__(self) -> Any:
        return SQLiteStore, (self.path, self._database.timeout)

    def read(self, agent: str, session_id: SessionId, after: int = 0, epoch: int | None = None) -> StoredMessages:
        values = {"agent": agent, "session": json.dumps(session_id), "after": after, "epoch": epoch}
        with self._database.reading() as connection:
            rows = connection.execute(_READ, values).fetchall()
        found = rows[0][0]
        return StoredMessages(found, after if found == epoch else 0, [json.loads(text) for _, text in rows if text is not None])

    def append(self, agent: str, session_id: SessionId, messages: Sequence[Message]) -> None:
        self._store(agent, session_id, messages, anew=False)

    def replace(self, agent: str, session_id: SessionId, messages: Sequence[Message]) -> None:
        self._store(agent, session_id, messages, anew=True)

    def delete(self, agent: str, session_id: SessionId) -> None:
        with self._database.writing() as connection:
            _delete(connection, agent, json.dumps(session_id))

    def sessions(self, agent: str) -> list[SessionId]:
        """The sessions that hold messages of ``agent``, in the order in which they began."""
        with self._database.reading() as connection:
            rows = connection.execute("SELECT session FROM sessions WHERE agent = ? ORDER BY id", (agent,)).fetchall()
        return [json.loads(text) for (text,) in rows]

    def expire(self, older_than: float) -> int:
        """Forget every session, of whatever agent, that nothing was added to for ``older_than`` seconds.

        Returns:
            How many sessions that were.
        """
        with self._database.writing() as connection:
            return connection.execute("DELETE FROM sessions WHERE updated < ?", (time.time() - older_than,)).rowcount

    def export(self) -> Iterator[dict[str, Any]]:
        """Every session of every agent as JSON-safe data, one at a time.

        Yields:
            ``{"agent": …, "session_id": …, "updated": seconds since 1970, "messages": […]}``. Each session is whole; one that is
            replaced meanwhile may come twice, the newer state last. Others may go on reading and writing.
        """
        last = 0
        while True:
            with self._database.reading() as connection:
                row = connection.execute(
                    "SELECT id, agent, session, updated FROM sessions WHERE id > ? ORDER BY id LIMIT 1", (last,)
                ).fetchone()
            if row is None:
                return
            last, agent, name, updated = row
            session_id = json.loads(name)
            yield {
                "agent": agent,
                "session_id": session_id,
                "updated": updated,
                "messages": self.read(agent, session_id).messages,
            }

    def import_(self, records: Iterable[Mapping[str, Any]]) -> int:
        """Store what :meth:`export` gave; a session that exists is replaced. Each session is stored whole or not at all.

        Returns:
            How many sessions were stored.

        Raises:
            StateError: a record has another form; those before it are stored.
        """
        count = 0
        for record in records:
            match record:
                case {
                    "agent": str(agent),
                    "session_id": str() | int() as session_id,
                    "updated": int() | float() as updated,
                    "messages": list(messages),
                }:
                    pass
                case _:
                    raise StateError(f"record {count} is not a session as export() gives them: {record!r:.80}")
            self._store(agent, session_id, messages, anew=True, updated=updated)
            count += 1
        return count

    def close(self) -> None:
        self._database.close()

    def _store(
        self, agent: str, session_id: SessionId, messages: Sequence[Message], *, anew: bool, updated: float | None = None
    ) -> None:
        session, texts = json.dumps(session_id), [_text(message) for message in messages]
        updated = time.time() if updated is None else updated
        with self._database.writing() as connection:
            if anew:
                _delete(connection, agent, session)
            if not texts:
                return
            connection.execute(
                "INSERT INTO sessions (agent, session, epoch, updated) SELECT ?, ?, count, ? FROM removals WHERE true "
                "ON CONFLICT (agent, session) DO UPDATE SET updated = excluded.updated",
                (agent, session, updated),
            )
            (id_,) = connection.execute("SELECT id FROM sessions WHERE agent = ? AND session = ?", (agent, session)).fetchone()
            (start,) = connection.execute(
                "SELECT coalesce(max(place) + 1, 0) FROM messages WHERE session_id = ?", (id_,)
            ).fetchone()
            connection.executemany(
                "INSERT INTO messages VALUES (?, ?, ?)", [(id_, place, text) for place, text in enumerate(texts, start)]
            )


def _delete(connection: sqlite3.Connection, agent: str, session: str) -> None:
    connection.execute("DELETE FROM sessions WHERE agent = ? AND session = ?", (agent, session))


def _text(message: Message) -> str:
    """The message as JSON text; with escapes only where it holds half of a surrogate pair, which UTF-8 cannot express."""
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(message, separators=(",", ":"))
    return text
