"""The store passes the kit of memory stores."""

from pathlib import Path

import pytest

from lagent.testing import MemoryStoreTests
from lagent_sqlite import SQLiteStore


class TestSQLiteStore(MemoryStoreTests):
    @pytest.fixture
    def store(self, tmp_path: Path) -> SQLiteStore:
        return SQLiteStore(tmp_path / "lagent.db")

    def reopen(self, store: SQLiteStore) -> SQLiteStore:
        return SQLiteStore(store.path)
