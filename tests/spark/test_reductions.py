"""Spark's folds and newest-per-key against plain Python, over generated records: repeated, reordered, stale."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventstore.event_types import event_type_of
from projections import Table
from projections.spark.kinds import Reduction
from tests.integration.tickets import CUSTOMERS, DECLARED, Ticket
from tests.reference import fold_table, newest_per_key
from tests.unit.eventstore.account import Deposited, Opened, account

RAW = "topic string, partition int, offset bigint, key string, value binary"
REGISTRY = {kind.schema_id: kind.registered for kind in Ticket.event_types.values()}
# A Spark job takes some 0.3 s here: few examples, each of many streams or keys.
FEW = settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

events = st.one_of(
    st.builds(Ticket.Opened, customer_id=st.none() | st.integers(-(2**63), 2**63 - 1),
              hours=st.decimals(-99_999, 99_999, places=4)),
    st.builds(Ticket.Moved, customer_id=st.none() | st.integers(0, 9)),
    st.just(Ticket.Closed()),
)  # fmt: skip


@st.composite
def event_records(draw, deletions=False):
    """Streams of several events, their records shuffled across streams and some of them repeated.

    With ``deletions``, some streams are deleted, and compaction has taken away some records of theirs.
    """
    streams = draw(st.lists(st.lists(events, min_size=1, max_size=6), min_size=1, max_size=30))
    records = [
        (f"ticket-{number}@{version}", event_type_of(e).encode(e))
        for number, stream in enumerate(streams)
        for version, e in enumerate(stream)
    ]
    for number in sorted(draw(st.sets(st.integers(0, len(streams) - 1), max_size=5))) if deletions else ():
        records = [r for r in records if not r[0].startswith(f"ticket-{number}@") or draw(st.booleans())]
        first = draw(st.integers(0, len(streams[number])))
        records += [(f"ticket-{number}@{version}", None) for version in range(first, len(streams[number]) + 1)]
    repeated = draw(st.lists(st.sampled_from(records), max_size=5))
    return [(offset, *record) for offset, record in enumerate(draw(st.permutations(records + repeated)))]


def raw_frame(session, records):
    rows = [("t", 0, offset, key, None if value is None else bytearray(value)) for offset, key, value in records]
    return session.createDataFrame(rows, RAW)


def rows_of(frame, table):
    found = frame.where("NOT _deleted").select(*table.columns).collect()
    return {row[0]: {c: row[c] for c in table.payload} for row in found}


@pytest.mark.parametrize(
    ("session", "columns", "decoded"),
    [("spark", DECLARED, "in the JVM"), ("spark", None, "in the JVM"), ("small", DECLARED, "in Python")],
    ids=["declared columns", "Python evolve", "decoded in Python"],
    indirect=["decoded"],
)
@pytest.mark.usefixtures("spark")
@FEW
@given(records=event_records(deletions=True))
def test_a_fold_in_spark_equals_the_fold_in_plain_python(request, session, columns, decoded, records):
    table = Table.from_events(Ticket, key="ticket_id", columns=columns)
    raw = raw_frame(request.getfixturevalue(session), records).coalesce(2 if session == "spark" else 1)
    folded = rows_of(Reduction(REGISTRY).reduce(raw, table), table)
    assert folded == fold_table(table, records)


@FEW
@given(records=event_records(), cut=st.integers(0, 100))
def test_a_python_fold_goes_on_from_stored_rows(small, records, cut):
    table = Table.from_events(Ticket, key="ticket_id")
    in_order = sorted(records, key=_stream_and_version)
    first = [r for r in in_order if _stream_and_version(r)[1] <= (cut * 31 + len(_stream_and_version(r)[0])) % 5]
    reduction = Reduction(REGISTRY)
    stored = reduction.reduce(raw_frame(small, first).coalesce(1), table)
    kept = {row[0]: row for row in stored.collect()}
    later = {row[0] for row in reduction.reduce(raw_frame(small, in_order).coalesce(1), table, stored).collect()}
    result = rows_of(reduction.reduce(raw_frame(small, in_order).coalesce(1), table, stored), table)
    expected = fold_table(table, records)
    assert result == {key: row for key, row in expected.items() if key in later}
    assert {k: {c: row[c] for c in table.payload} for k, row in kept.items() if k not in later} == {
        key: row for key, row in expected.items() if key not in later
    }


def _stream_and_version(record):
    stream, _, version = record[1].rpartition("@")
    return stream, int(version)


rows = st.fixed_dictionaries({
    "name": st.none() | st.text(max_size=5), "region_id": st.none() | st.integers(0, 5),
    "note": st.none() | st.text(max_size=5), "since": st.none() | st.just("2013-02-03Z"),
})  # fmt: skip


@st.composite
def change_records(draw):
    """Keys with a life: created, changed, deleted, made again; stale snapshot rows and repeated changes between."""
    records, lsn, lives, replayed = [], 100, {}, {}
    for key in draw(st.lists(st.integers(0, 9), min_size=1, max_size=60)):
        lsn += 10
        text = json.dumps({"id": key})
        if lives.get(key) and draw(st.integers(0, 3)) == 0:
            gone = [(text, _change("d", None, lsn)), *([(text, None)] if draw(st.booleans()) else [])]
            records += gone
            replayed[key] = gone
            lives[key] = False
        else:
            row = draw(rows) | {"id": key}
            if lives.get(key) and draw(st.booleans()):
                row["note"] = "__debezium_unavailable_value"
            records.append((text, _change("u" if lives.get(key) else "c", row, lsn)))
            lives[key] = True
        if key in replayed and draw(st.integers(0, 3)) == 0:
            records += replayed[key]  # sent again after a kill: old by now, its tombstone too
        if draw(st.integers(0, 5)) == 0:
            records.append((text, _change("r", draw(rows) | {"id": key}, 10**9, snapshot=True)))
    return [(offset, *record) for offset, record in enumerate(records)]


def _change(op, after, lsn, *, snapshot=False):
    source = {"lsn": lsn, "snapshot": "true" if snapshot else "false"}
    return json.dumps({"op": op, "after": after, "source": source}).encode()


@FEW
@given(records=change_records())
def test_newest_per_key_in_spark_equals_plain_python(spark, records):
    table = Table.from_changelog(CUSTOMERS, topic="t")
    newest = rows_of(Reduction({}).reduce(raw_frame(spark, records), table), table)
    texts = {k: {**row, "since": row["since"] and f"{row['since']}Z"} for k, row in newest.items()}
    assert texts == {
        json.loads(key)["id"]: {c: row[c] for c in table.payload} for key, row in newest_per_key(records).items()
    }


def test_an_aggregate_of_functions_is_folded_as_one_of_methods(small):
    happened = [Opened(owner="Ada"), Deposited(amount=Decimal(3)), Deposited(amount=Decimal("1.5"))]
    records = [(n, f"account-1@{n}", event_type_of(e).encode(e)) for n, e in enumerate(happened)]
    table = Table.from_events(account, key="account_id")
    registry = {kind.schema_id: kind.registered for kind in account.event_types.values()}
    folded = rows_of(Reduction(registry).reduce(raw_frame(small, records).coalesce(1), table), table)
    assert folded == fold_table(table, records) == {"1": {"owner": "Ada", "balance": Decimal("4.5")}}
    assert table.signature() != Table.from_events(Ticket, key="account_id").signature()
