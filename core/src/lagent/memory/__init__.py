"""Memories of agents, and the interface of the stores that keep them."""

from typing import Any

from lagent.memory.base import Memory, StoredMemory
from lagent.memory.manager import MemoryManager
from lagent.memory.store import MemoryStore, StoredMessages

__all__ = ["Memory", "MemoryManager", "MemoryStore", "StoredMemory", "StoredMessages"]


def __getattr__(name: str) -> Any:
    from lagent.registry import find_class

    return find_class(__name__, name)
