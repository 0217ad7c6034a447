"""The messages of one agent in one session."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from lagent.errors import StateError
from lagent.flow import Call
from lagent.memory.store import MemoryStore
from lagent.schema import AgentMessage, SessionId

__all__ = ["Memory", "StoredMemory", "wait_for"]


class Memory:
    """The messages of one agent in one session, oldest first, in the process.

    A call of the agent is a transaction: :meth:`begin`, then :meth:`add` for input and output, then :meth:`commit` or
    :meth:`rollback`. Outside of one, changes take effect at once.

    Args:
        recent_n: how many of the newest messages :meth:`get_memory` gives when it is not told; all by default.

    Attributes:
        memory: the messages themselves.
        epoch: changes whenever messages were removed or replaced, so that whoever derived something from them starts anew.
        derived: what aggregators keep about this memory between turns, by aggregator.
    """

    blocking: ClassVar[bool] = False
    """Whether ``begin`` and ``commit`` wait for something, so that an asynchronous agent has to call them in a thread."""

    def __init__(self, recent_n: int | None = None) -> None:
        self.memory: list[AgentMessage] = []
        self.recent_n = recent_n
        self.epoch = 0
        self.derived: dict[int, Any] = {}
        self._before: tuple[list[AgentMessage], int] | None = None

    def __len__(self) -> int:
        return len(self.memory)

    def __bool__(self) -> bool:
        return True  # an empty memory is still a memory

    def get_memory(
        self, recent_n: int | None = None, filter_func: Callable[[int, AgentMessage], bool] | None = None
    ) -> list[AgentMessage]:
        """The messages, oldest first.

        Args:
            recent_n: only that many of the newest.
            filter_func: called with the place and the message; only those for which it is true.
        """
        recent_n = recent_n or self.recent_n
        messages = self.memory[-recent_n:] if recent_n is not None else list(self.memory)
        return messages if filter_func is None else [m for i, m in enumerate(messages) if filter_func(i, m)]

    def add(self, memories: Any) -> None:
        """Add a message, or several; a string counts as a message of the user, ``None`` as nothing.

        The memory keeps copies of its own, so that changing a message later does not change what is remembered.
        """
        for item in memories if isinstance(memories, (list, tuple)) else [memories]:
            if not isinstance(item, AgentMessage):
                if item is None:
                    continue
                item = AgentMessage(item) if isinstance(item, str) else AgentMessage.model_validate(item)
            self.memory.append(item.model_copy(deep=True))
        self._changed()

    def delete(self, index: int | Iterable[int]) -> None:
        """Remove the message at a place, or the messages that stand at several places before the call.

        Raises:
            IndexError: there is no message at one of the places; none is removed then.
        """
        size = len(self.memory)
        places = {index} if isinstance(index, int) else set(index)
        if wrong := sorted(place for place in places if not -size <= place < size):
            raise IndexError(f"no message at place {', '.join(map(str, wrong))}: the memory holds {size}")
        places = {place % size for place in places}
        self._replace([m for i, m in enumerate(self.memory) if i not in places])

    def load(self, memories: Any, overwrite: bool = True) -> None:
        """Take saved messages: a list of them, or one.

        Args:
            memories: what :meth:`save` gave.
            overwrite: whether they take the place of the present messages or follow them.

        Raises:
            TypeError: ``memories`` is neither a list nor a mapping.
            StateError: one of them is not a message; nothing is changed then.
        """
        if isinstance(memories, (dict, AgentMessage)):
            memories = [memories]
        if not isinstance(memories, (list, tuple)):
            raise TypeError(f"saved messages are a list or a mapping, not {type(memories).__name__}: {memories!r:.80}")
        loaded = []
        for place, item in enumerate(memories):
            try:
                loaded.append(AgentMessage.model_validate(item).model_copy(deep=True))
            except StateError as error:
                raise StateError(f"message {place}: {error}") from error
        self._replace(loaded if overwrite else [*self.memory, *loaded])

    def save(self) -> list[dict[str, Any]]:
        """The messages as JSON-safe data; those of a call that is still running are left out."""
        messages, count = self._before or (self.memory, len(self.memory))
        return [message.model_dump() for message in messages[:count]]

    # Transactions

    def begin(self) -> None:
        """Start a transaction."""
        self._before = self.mark()

    def commit(self) -> None:
        """Keep what the transaction did."""
        self._before = None

    def rollback(self) -> None:
        """Undo what was done since :meth:`begin`; outside a transaction, nothing."""
        if self._before is None:
            return
        messages, count = self._before
        if self.memory is not messages or len(messages) > count:
            self.memory = messages
            del messages[count:]
            self.epoch += 1
        self._before = None

    def mark(self) -> tuple[list[AgentMessage], int]:
        """The present contents, for :meth:`restore`; costs nothing."""
        return self.memory, len(self.memory)

    def restore(self, mark: tuple[list[AgentMessage], int]) -> None:
        """Go back to the contents at a :meth:`mark`."""
        messages, count = mark
        if self.memory is not messages or len(messages) != count:
            self._replace(messages[:count])

    def _replace(self, messages: list[AgentMessage]) -> None:
        self.memory = messages  # a new list, so that a rollback finds the old one
        self.epoch += 1
        self._changed()

    def _changed(self) -> None:
        """Called after every change."""


class StoredMemory(Memory):
    """A memory whose messages are kept in a :class:`MemoryStore`, which other processes may write to as well.

    A call begins with reading what is new in the store, and ends with writing its own messages at once. Outside a call, every change
    is written when it is made.

    Args:
        store: where the messages are kept.
        agent: the agent's key within the store.
        session_id: the session.
        recent_n: see :class:`Memory`.
    """

    blocking = True

    def __init__(self, store: MemoryStore, agent: str, session_id: SessionId, recent_n: int | None = None) -> None:
        super().__init__(recent_n)
        self._store, self._key = store, (agent, session_id)
        self._kept = self.memory  # what stands in the store: the first _written of these messages,
        self._written = 0
        self._read = 0  # of which this many were read from it, so that their order there is certain
        self._store_epoch: int | None = None
        self.refresh()

    def refresh(self) -> None:
        """Read what others wrote since the last time."""
        found = wait_for(self._store.read, *self._key, self._read, self._store_epoch)
        own = [message.model_dump() for message in self._kept[self._read : self._written]]
        continues = found.start == self._read and self._store_epoch in (None, found.epoch)
        if continues and found.messages[: len(own)] == own:
            self._kept += map(AgentMessage.model_validate, found.messages[len(own) :])
        else:
            self._kept = self._kept[: found.start] + list(map(AgentMessage.model_validate, found.messages))
            self.epoch += 1
        self.memory = self._kept
        self._written = self._read = len(self._kept)
        self._store_epoch = found.epoch

    def begin(self) -> None:
        self.refresh()
        super().begin()

    def commit(self) -> None:
        self._write()
        super().commit()

    def _changed(self) -> None:
        if self._before is not None:
            return
        try:
            self._write()
        except BaseException:
            self.memory = self._kept
            del self.memory[self._written :]
            self.epoch += 1
            raise

    def _write(self) -> None:
        if self.memory is self._kept:
            if new := [message.model_dump() for message in self._kept[self._written :]]:
                wait_for(self._store.append, *self._key, new)
                self._written = len(self._kept)
        else:
            wait_for(self._store.replace, *self._key, [message.model_dump() for message in self.memory])
            self._kept, self._written, self._read, self._store_epoch = self.memory, len(self.memory), 0, None


def wait_for(function: Callable[..., Any], *args: Any) -> Any:
    """The result of a store's method, asynchronous or not."""
    return Call(function, args).run()
