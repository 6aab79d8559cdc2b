"""What every event store must do; a backend joins with a fixture named `store`.

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def store(self) -> EventStore: ...

Each test uses streams of its own, so one store may serve them all. A backend that does not do everything joins by the
parts for what it does: StreamConformance (append, read, repeat), EvolutionConformance, SnapshotConformance,
DeletionConformance, ArchiveConformance. StoreConformance is all of these. TransactionConformance, which wants a fixture
`begin` too, is for stores in a database that others write to as well.
"""

from __future__ import annotations

from eventstore.testing.changed_classes import EvolutionConformance
from eventstore.testing.closed_streams import ArchiveConformance, ClosedStreamConformance, DeletionConformance
from eventstore.testing.joined_transactions import TransactionConformance
from eventstore.testing.open_streams import StreamConformance
from eventstore.testing.stored_snapshots import SnapshotConformance

__all__ = [
    "ArchiveConformance",
    "ClosedStreamConformance",
    "DeletionConformance",
    "EvolutionConformance",
    "SnapshotConformance",
    "StoreConformance",
    "StreamConformance",
    "TransactionConformance",
]


class StoreConformance(StreamConformance, EvolutionConformance, SnapshotConformance, ClosedStreamConformance):
    """Tests that every event store passes. Subclass it and give it a fixture `store`.

    Examples:
        >>> class TestMyStore(StoreConformance):
        ...     @pytest.fixture
        ...     def store(self):
        ...         return MyStore()
    """
