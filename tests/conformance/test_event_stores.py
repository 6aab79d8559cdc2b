"""Every store is an event store: in memory, in SQLite and in PostgreSQL, and the asynchronous ones.

The asynchronous store is the synchronous one in a greenlet. It passes the whole suite on SQLite. PostgreSQL adds one
case for each method. Cancellations, lost connections and the fence are in tests/integration/test_eventstore_async.py.
"""

from __future__ import annotations

import uuid
from contextlib import contextmanager, nullcontext

import pytest
import sqlalchemy

from eventstore import ANY, MemoryEventStore, SqlEventStore
from eventstore.testing.conformance import (
    ArchiveConformance,
    DeletionConformance,
    EvolutionConformance,
    SnapshotConformance,
    StoreConformance,
    StreamConformance,
    TransactionConformance,
)
from tests.conformance.on_a_loop import on_a_loop
from tests.ledger import Payment


@pytest.fixture(scope="class")
def store(request):
    """The store of all cases of a class."""
    with request.cls.opened(request) as store:
        yield store


class StreamsOnly:
    """A backend that keeps no snapshots, and neither deletes nor archives."""

    def __init__(self, store):
        self.append, self.append_batch, self.find, self.head = store.append, store.append_batch, store.find, store.head
        self.read_stream, self.read_all = store.read_stream, store.read_all


class TestPartOfTheSuite(StreamConformance):
    opened = staticmethod(lambda request: nullcontext(StreamsOnly(MemoryEventStore())))


class InATransaction(TransactionConformance):
    @pytest.fixture
    def begin(self, store):
        return store.engine.begin


@contextmanager
def tables_of(url, **options):
    with SqlEventStore(url, **options) as store:
        store.create_tables()
        yield store


def new_file(request, scheme="sqlite"):
    folder = request.getfixturevalue("tmp_path_factory").mktemp("store")
    return f"{scheme}:///{folder / 'events.db'}"


def new_database(request):
    postgres, name = request.getfixturevalue("postgres").info.postgres, f"test_{uuid.uuid4().hex[:12]}"
    engine = sqlalchemy.create_engine(postgres.url(), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f'create database "{name}"')
    engine.dispose()
    return postgres.url(name)


class TestSqlite(StoreConformance, InATransaction):
    opened = staticmethod(lambda request: tables_of(new_file(request)))


class TestPostgres(StoreConformance, InATransaction):
    opened = staticmethod(lambda request: tables_of(new_database(request)))


class Asynchronous:
    """The methods that the suite does not call."""

    def test_it_answers_as_the_synchronous_store(self, store):
        for category in ("payment", "other_payment"):
            assert store.declare_category(category, partitions=3, topic=f"own.{category}").partitions == 3
        store.register(Payment)
        first, second = (store.append("payment-1", [Payment.Received(amount=n)], expected=ANY) for n in range(2))
        store.append("payment-2", [Payment.Received(amount=2)], expected=ANY)
        store.archive_stream("payment-2", expected=0)
        after = {"payment": first.positions[0], "other_payment": None}
        (schema,) = [one for one in store.schemas() if one.name == "payment.received"]
        for method, arguments, options in (
            ("categories", (), {}),
            ("schema", (schema.id,), {}),
            ("read_categories", (after,), {"limit": 1}),
            ("last_position", ("payment",), {"before": second.time}),
            ("backlog", (first.positions[0],), {"category": "payment"}),
            ("fence", (), {}),
        ):
            direct = store.run_sync(getattr(SqlEventStore, method), *arguments, **options)
            assert getattr(store, method)(*arguments, **options) == direct
        assert [one.data["amount"] for one in store.read_categories(after, limit=1)] == [1]
        assert store.backlog(first.positions[0], category="payment")[0] == 2
        assert list(store.archived_streams("payment")) == ["payment-2"]


class TestAsyncSqlite(StoreConformance, Asynchronous):
    opened = staticmethod(lambda request: on_a_loop(new_file(request, "sqlite+aiosqlite")))


class OfEachStatement(EvolutionConformance, SnapshotConformance):
    """One case for each method and statement, and those of writers at once."""

    test_append = StreamConformance.test_events_come_back_as_they_were_appended
    test_append_batch = StreamConformance.test_a_batch_answers_in_the_order_given
    test_a_refused_batch = StreamConformance.test_a_batch_is_stored_whole_or_not_at_all
    test_read_backwards = StreamConformance.test_a_part_of_a_stream_is_read_backwards_and_up_to_a_limit
    test_read_up_to_a_time = StreamConformance.test_a_stream_is_read_up_to_a_time
    test_read_a_long_stream = StreamConformance.test_a_long_stream_is_read_to_its_end
    test_read_all = StreamConformance.test_everything_is_read_once_in_order_from_any_checkpoint
    test_read_a_category = StreamConformance.test_everything_of_one_category_up_to_a_limit
    test_metadata = StreamConformance.test_metadata_is_stored_by_append_and_by_event
    test_find = StreamConformance.test_an_event_is_found_by_its_id
    test_an_id_that_is_taken = StreamConformance.test_an_event_id_names_one_event_for_ever
    test_a_repeated_append = StreamConformance.test_an_append_that_is_repeated_with_its_ids_gets_the_result_of_the_first
    test_repetitions_at_once = StreamConformance.test_of_repetitions_at_once_one_is_appended
    test_hostile_ids = StreamConformance.test_hostile_stream_ids_are_just_text
    test_writers_at_once = StreamConformance.test_writers_of_any_version_leave_no_gap
    test_writers_of_one_version = StreamConformance.test_of_writers_expecting_one_version_one_wins
    test_batches_that_cross = StreamConformance.test_batches_that_cross_each_other_all_arrive
    test_delete = DeletionConformance.test_a_deleted_stream_is_empty_and_refuses_appends
    test_delete_at_once = DeletionConformance.test_a_deleted_stream_stays_deleted_under_concurrent_appends
    test_archive = ArchiveConformance.test_an_archived_stream_is_read_as_ever_and_takes_nothing_until_it_is_taken_out


class TestPostgresInASchemaOfItsOwn(OfEachStatement, InATransaction):
    opened = staticmethod(lambda request: tables_of(new_database(request), schema="shop"))


class TestAsyncPostgres(OfEachStatement, Asynchronous):
    opened = staticmethod(lambda request: on_a_loop(new_database(request)))
