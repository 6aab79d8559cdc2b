"""Transforms at work on a live worker: what each makes of the records of one connector."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from cdc import ConnectClient, apply_connector
from cdc.transforms import Filter, Flatten, HasHeader, InsertHeader, Mask, RouteByRegex, TopicMatches
from eventstore.topics import TopicRecord
from tests.connectors import rest

ENVELOPES, ROWS, DROPPED = "public.people", "public.addresses", "public.drafts"


@pytest.fixture(scope="module")
def source(captured: Callable[[], Any], connect: ConnectClient) -> Any:
    """A source in its second life: envelopes as they are, rows flattened, masked and routed, drafts dropped."""
    shop = captured()
    for table in (ENVELOPES, ROWS, DROPPED):
        shop.run(f"CREATE TABLE {table} (id int PRIMARY KEY, email text, town text)")
        shop.run(f"INSERT INTO {table} VALUES (1, 'a@example.org', 'Ulm')")
    rows = TopicMatches(pattern=rf".*\.{ROWS}")
    declared = shop.source(
        tables=(ENVELOPES, ROWS, DROPPED),
        epoch=2,
        signal_table="public.signals",
        transactions=True,
        transforms=(
            InsertHeader(header="draft", value="yes", when=TopicMatches(pattern=rf".*\.{DROPPED}")),
            Filter(when=HasHeader(header="draft")),
            Flatten(when=rows, fields=("op",)),
            # One predicate a transform: this one lets the other topics through, whose tombstones it could not mask.
            Mask(fields=("email",), replacement="(hidden)", when=rows, negate=False),
            RouteByRegex(pattern=rf"(.*)\.{ROWS}", replacement="$1.rows", when=rows),
        ),
    )
    apply_connector(connect, shop.prepared(declared), source=shop.engine)
    shop.run(f"DELETE FROM {ENVELOPES}", f"INSERT INTO {ROWS} VALUES (2, NULL, 'Bonn')")
    shop.run("INSERT INTO public.signals VALUES ('2', 'log', '{}')")
    return declared


def values(records: list[TopicRecord]) -> list[Any]:
    """The values of JSON records, None for tombstones."""
    return [None if record.value is None else json.loads(record.value) for record in records]


def test_changes_say_which_life_they_come_from_and_tombstones_stay_null(
    source: Any, records_of: Callable[..., list[TopicRecord]]
) -> None:
    snapshot, deletion, tombstone = values(records_of(source.topic(ENVELOPES), count=3))

    assert (snapshot["op"], snapshot["factfold_epoch"]) == ("r", "2")
    assert (deletion["op"], deletion["factfold_epoch"]) == ("d", "2")
    assert tombstone is None


def test_the_life_is_said_of_transactions_too_and_in_no_other_record(
    source: Any, records_of: Callable[..., list[TopicRecord]]
) -> None:
    begin = values(records_of(source.transaction_topic, count=2))[0]

    assert begin["status"] == "BEGIN"
    assert begin["factfold_epoch"] == "2"
    beats = values(records_of(f"__debezium-heartbeat.{source.topic_prefix}", count=1))
    assert all("factfold_epoch" not in beat for beat in beats)


def test_rows_are_flattened_masked_and_routed_in_that_order_and_null_stays_null(
    source: Any, records_of: Callable[..., list[TopicRecord]]
) -> None:
    rows = values(records_of(f"{source.topic_prefix}.rows", count=2))

    assert sorted(rows, key=lambda row: row["id"]) == [
        {"id": 1, "email": "(hidden)", "town": "Ulm", "__op": "r"},
        {"id": 2, "email": None, "town": "Bonn", "__op": "c"},
    ]


def test_what_is_filtered_has_no_topic(
    source: Any, records_of: Callable[..., list[TopicRecord]], connect: ConnectClient
) -> None:
    records_of(f"{source.topic_prefix}.rows", count=2)
    records_of(source.topic(ENVELOPES), count=3)

    topics = rest(connect, "GET", f"/connectors/{source.name}/topics")[source.name]["topics"]

    assert source.topic(ENVELOPES) in topics
    assert not {source.topic(DROPPED), source.topic(ROWS), f"{source.topic_prefix}.public.signals"} & set(topics)
