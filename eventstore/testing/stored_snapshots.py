"""What every store of aggregate snapshots must do; a part of the conformance suite."""

# ruff: noqa: S101, D102  # assertions are what this module is for, and its names are the sentences

from __future__ import annotations

from uuid import uuid4

from eventstore.snapshots import AggregateSnapshot, SnapshotStore


class SnapshotConformance:
    """A part of the suite; `store` must be ready for use."""

    def test_a_snapshot_is_stored_until_a_newer_one_or_another_shape_replaces_it(self, store: SnapshotStore) -> None:
        stream, one, two = f"account-{uuid4()}", b"\0\0\0\0\1", b"\0\0\0\0\2"
        assert store.snapshot(stream) is None
        for version, shape, body, stored in (
            (4, one, b"first", True),
            (4, one, b"the same again", False),
            (3, one, b"late", False),
            (5, one, b"newer", True),
            (2, two, b"of another shape", True),
        ):
            offered = AggregateSnapshot(stream, version, shape + body)
            store.keep_snapshot(offered)
            assert (store.snapshot(stream) == offered) == stored
