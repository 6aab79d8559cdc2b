"""A topic follows its view over cut-overs and rollbacks: the difference, tombstones included; no Spark, no broker."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from types import SimpleNamespace

import pyarrow as pa
import pytest

from eventstore.errors import TopicMissing
from projections import ProjectionGroup, view
from projections.declaring.columns import ColumnType
from projections.errors import ViewInUse
from projections.outputs.publishing import opened_publisher, prepare_topics
from projections.stores import handing_over, outbox, runs, staging
from projections.stores.runs import BUILT
from projections.stores.staging import commit_batch
from projections.testing.memory_log import MemoryLog
from tests.conformance.join_views import orders
from tests.conformance.topic_folds import folded, publisher, rows_of, waiting

pytestmark = pytest.mark.postgres_in_faults

LONG, TEXT = ColumnType("long"), ColumnType("string")
COLUMNS = {"id": LONG, "name": TEXT, "amount": LONG}
ROWS = [{"id": number, "name": f"row {number}", "amount": 1} for number in range(6)]
TOPIC = "sold-rows"


def group_of(version=1, name="sold", topic=TOPIC):
    @view(key="id", topic=topic)
    def sold(orders):
        return orders

    return ProjectionGroup(name, [sold], version=version)


@pytest.fixture
def log():
    return MemoryLog()


def built(store, log, group, rows, columns=COLUMNS, *, at=0):
    """A complete generation that nobody reads yet, its topic made."""
    prepare_topics(SimpleNamespace(store=store, log=log), group)
    run, layout = store.begin_generation(group, {"sold": columns})
    schema = pa.schema([(name, kind.arrow()) for name, kind in columns.items()])
    store.target(layout.views["sold"].view).append(pa.Table.from_pylist(rows, schema))
    store.index_generation(group, layout)
    with store.transaction() as connection:
        runs.set_progress(connection, run, {orders.topic: {0: at}})
        runs.update(connection, run, status=BUILT)
    return run, layout


def serve(store, log, group, rows, columns=COLUMNS, *, publish=True, at=0):
    run, layout = built(store, log, group, rows, columns, at=at)
    assert store.switch(group, run, layout)
    if publish:
        publisher(store, log, group.name).publish()
    return run, layout


def change(store, run, layout, *rows, at=0):
    """A batch that brings these view rows."""
    with store.staging(run) as connection:
        mark = staging.begin(connection, layout)
    schema = pa.schema([(name, kind.arrow()) for name, kind in COLUMNS.items()])
    store.target(layout.views["sold"].result).append(pa.Table.from_pylist(list(rows), schema))
    with store.transaction() as connection:
        start, end = ({orders.topic: {0: offset}} for offset in (at, at + 1))
        commit_batch(connection, layout, run, start=start, end=end, mark=mark)


def test_the_first_generation_that_serves_fills_the_topic_and_one_under_construction_does_not(store, log):
    run, layout = built(store, log, group_of(), ROWS)
    change(store, run, layout, {"id": 9, "name": "nine", "amount": 9})
    assert (waiting(store), publisher(store, log, "sold").publish()) == ({}, 0)
    store.switch(group_of(), run, layout)
    publisher(store, log, "sold").publish()
    assert folded(log, TOPIC) == rows_of(store, layout.views["sold"])
    assert len(log.records(TOPIC)) == len(ROWS) + 1


@pytest.mark.both_databases
def test_a_cut_over_publishes_the_difference_and_a_rollback_takes_it_back(store, log):
    first, its_layout = serve(store, log, group_of(), ROWS)
    rows = [*ROWS[1:], {"id": 7, "name": 'so"\u00f6', "amount": None}]
    rows[0] = {**rows[0], "amount": 2}
    _, layout = serve(store, log, group_of(2), rows)
    assert folded(log, TOPIC) == rows_of(store, layout.views["sold"])
    assert len(log.records(TOPIC)[6:]) == 3  # one gone, one changed, one new: the others are as they were
    store.switch(group_of(), store.claim(first), its_layout)
    publisher(store, log, "sold").publish()
    assert folded(log, TOPIC) == rows_of(store, its_layout.views["sold"])


def held_at_first(store, monkeypatch, *, tries):
    """The last of so many tries alone succeeds; returns the connections by which it was tried."""
    connections, point = [], type(store)._point

    def pointed(self, connection, name, view):
        connections.append(connection)
        point(self, connection, name, view)
        if len(connections) < tries:
            raise ViewInUse("a query holds the view", remedy="end it", place=name)

    monkeypatch.setattr(type(store), "_point", pointed)
    return connections


@pytest.mark.both_databases
def test_a_view_that_is_held_is_tried_again_and_what_the_topic_lacks_is_worked_out_once(store, log, monkeypatch):
    serve(store, log, group_of(), ROWS)
    run, layout = built(store, log, group_of(2), ROWS[1:])
    worked_out, changed = [], handing_over._changed
    tried = held_at_first(store, monkeypatch, tries=3)
    monkeypatch.setattr(handing_over, "_changed", lambda *given: worked_out.append(given) or changed(*given))
    assert store.switch(group_of(2), run, layout)
    assert (len(tried), len(worked_out)) == (3, 1)
    publisher(store, log, "sold").publish()
    assert folded(log, TOPIC) == rows_of(store, layout.views["sold"])


def test_a_view_without_a_topic_is_tried_again_in_a_transaction_of_its_own(store, log, monkeypatch):
    run, layout = built(store, log, group_of(topic=None), ROWS)
    tried = held_at_first(store, monkeypatch, tries=2)
    assert store.switch(group_of(topic=None), run, layout)
    assert tried[0] is not tried[1]


@pytest.mark.both_databases
def test_a_cut_over_to_other_columns_publishes_every_row_and_one_to_another_key_leaves_nothing_behind(store, log):
    serve(store, log, group_of(), ROWS)
    fewer = {"id": LONG, "name": TEXT}
    _, layout = serve(store, log, group_of(2), [{"id": 1, "name": "one"}], fewer)
    assert folded(log, TOPIC) == {b'{"id":1}': {"id": 1, "name": "one"}} == rows_of(store, layout.views["sold"])
    texts = {"id": TEXT, "name": TEXT}
    serve(store, log, group_of(3), [{"id": "1", "name": "one"}], texts)
    assert folded(log, TOPIC) == {b'{"id":"1"}': {"id": "1", "name": "one"}}


@pytest.mark.both_databases
def test_a_batch_that_was_under_way_at_the_cut_over_is_not_published(store, log):
    first, its_layout = serve(store, log, group_of(), ROWS)
    _, layout = serve(store, log, group_of(2), ROWS)
    change(store, first, its_layout, {"id": 1, "name": "too late", "amount": 1})
    assert publisher(store, log, "sold").publish() == 0
    assert folded(log, TOPIC) == rows_of(store, layout.views["sold"])


@pytest.mark.both_databases
def test_what_the_last_generation_left_is_published_before_the_next_ones(store, log):
    serve(store, log, group_of(), ROWS, publish=False)
    _, layout = serve(store, log, group_of(2), ROWS[3:], publish=False)
    assert waiting(store)["sold"] == {TOPIC: 9}
    publisher(store, log, "sold").publish()
    assert folded(log, TOPIC) == rows_of(store, layout.views["sold"])


@pytest.mark.parametrize(
    ("limit", "value", "rows"), [("CHUNK_ROWS", 4, 4), ("CHUNK_LENGTH", 80, 3), ("CHUNK_LENGTH", 1, 1)]
)
def test_chunks_are_bounded_and_published_in_their_order(store, log, monkeypatch, limit, value, rows):
    monkeypatch.setattr(outbox, limit, value)
    serve(store, log, group_of(), ROWS, publish=False)
    _, layout = serve(store, log, group_of(2), ROWS[3:], publish=False)
    with store.looking() as connection:
        assert len(outbox.first_chunk(connection, "sold").rows[TOPIC]) == rows
    assert publisher(store, log, "sold").publish() == 9
    assert folded(log, TOPIC) == rows_of(store, layout.views["sold"])


def test_a_topic_that_was_deleted_is_filled_again_by_the_next_cut_over(store, log):
    group, environment = group_of(), SimpleNamespace(store=store, log=log)
    run, layout = serve(store, log, group, ROWS)
    log._topics.pop(TOPIC)
    for _ in range(2):  # it stays so, whatever is in the topic by now
        with pytest.raises(TopicMissing, match="was deleted"), opened_publisher(environment, group):
            pass
    change(store, run, layout, {"id": 8, "name": "eight", "amount": 8})
    publisher(store, log, "sold").publish()
    _, layout = serve(store, log, group_of(2), ROWS, at=1)
    assert folded(log, TOPIC) == rows_of(store, layout.views["sold"])
    with opened_publisher(environment, group_of(2)):
        pass


def test_a_topic_that_anybody_made_anew_is_not_taken_for_the_one_that_was_filled(store, log, monkeypatch):
    environment = SimpleNamespace(store=store, log=log)
    serve(store, log, group_of(), ROWS)
    with opened_publisher(environment, group_of()):
        pass
    monkeypatch.setattr(type(log), "topic_ids", lambda self, topics: dict.fromkeys(topics, "another"))
    for _ in range(2):
        with pytest.raises(TopicMissing, match="was deleted"), opened_publisher(environment, group_of()):
            pass


EVERY = {
    "id": LONG, "name": TEXT, "small": ColumnType("int"), "rate": ColumnType("double"), "open": ColumnType("boolean"),
    "price": ColumnType("decimal", 18, 4), "at": ColumnType("timestamp"), "day": ColumnType("date"),
    "raw": ColumnType("binary"),
}  # fmt: skip
MOMENT = dt.datetime(2026, 2, 3, 4, 5, 6, 70, tzinfo=dt.UTC)
FULL = {"id": 2**60 + 1, "name": 'a"\\\n\tö', "small": -1, "rate": 0.1, "open": True, "price": Decimal("-0.0500"),
        "at": MOMENT, "day": dt.date(1, 2, 3), "raw": b"\x00\xff"}  # fmt: skip


@pytest.mark.both_databases
def test_every_type_is_written_alike_by_every_database(store, log):
    rows = [FULL, {**dict.fromkeys(EVERY), "id": 2}, {**FULL, "id": 3, "rate": float("-inf"), "open": False}]
    rows += [{**FULL, "id": 4, "rate": 1 / 3}, {**FULL, "id": 5, "rate": 3.0}]
    serve(store, log, group_of(), rows, EVERY)
    texts = {json.loads(key)["id"]: value.decode() for key, value in log.records(TOPIC)}
    assert texts[2] == '{"id":2,' + ",".join(f'"{name}":null' for name in list(EVERY)[1:]) + "}"
    wanted = {"price": "-0.0500", "at": "2026-02-03T04:05:06.000070Z", "day": "0001-02-03", "raw": "00ff"}
    assert json.loads(texts[FULL["id"]]) == FULL | wanted
    assert " " not in texts[FULL["id"]]
    found = {number: json.loads(text) for number, text in texts.items()}
    assert (found[3]["rate"], found[3]["open"]) == ("-Infinity", False)
    assert (found[4]["rate"], found[5]["rate"]) == (1 / 3, 3.0)
    assert b'{"id":1152921504606846977}' in dict(log.records(TOPIC))
    serve(store, log, group_of(2), rows, EVERY)
    assert len(log.records(TOPIC)) == len(rows)  # the same rows are the same records, whatever their types
