"""The store in memory is an event store."""

from __future__ import annotations

import pytest

from eventstore import MemoryEventStore
from eventstore.testing.conformance import StoreConformance


@pytest.fixture(scope="module")
def memory_store() -> MemoryEventStore:
    return MemoryEventStore()


class TestMemory(StoreConformance):
    @pytest.fixture
    def store(self, memory_store: MemoryEventStore) -> MemoryEventStore:
        return memory_store
