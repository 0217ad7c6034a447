"""Keeps the memory of agents in an SQLite file."""

from lagent_sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]
