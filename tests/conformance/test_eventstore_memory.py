"""The store in memory is an event store."""

from __future__ import annotations

import pytest

from eventstore import MemoryEventStore
from eventstore.testing.conformance import StoreConformance, StreamConformance


@pytest.fixture(scope="module")
def memory_store() -> MemoryEventStore:
    return MemoryEventStore()


class TestMemory(StoreConformance):
    @pytest.fixture
    def store(self, memory_store: MemoryEventStore) -> MemoryEventStore:
        return memory_store


class StreamsOnly:
    """A backend that keeps no snapshots, and neither deletes nor archives."""

    def __init__(self, store: MemoryEventStore) -> None:
        self.append, self.append_batch, self.find, self.head = store.append, store.append_batch, store.find, store.head
        self.read_stream, self.read_all = store.read_stream, store.read_all


class TestPartOfTheSuite(StreamConformance):
    @pytest.fixture
    def store(self) -> StreamsOnly:
        return StreamsOnly(MemoryEventStore())
