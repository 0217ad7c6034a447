"""Memories of agents, and the interface of the stores that keep them."""

from lagent.memory.base import Memory, StoredMemory
from lagent.memory.manager import MemoryManager
from lagent.memory.store import MemoryStore, StoredMessages

__all__ = ["Memory", "MemoryManager", "MemoryStore", "StoredMemory", "StoredMessages"]
