"""The store passes the conformance kit of lagent."""

import pytest

from lagent import registry
from lagent.testing import MemoryStoreTests
from lagent_echo.parrot.memory import ParrotStore


class TestParrotStore(MemoryStoreTests):
    @pytest.fixture
    def store(self) -> ParrotStore:
        return ParrotStore()


def test_is_found_by_name() -> None:
    assert registry.get("memory", "parrot") is ParrotStore
