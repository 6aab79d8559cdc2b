"""Back in time: a view at a place of its log is what the live view was there, and what differs says by which record."""

from __future__ import annotations

import dataclasses
import random
import secrets
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
import sqlalchemy as sa

from eventstore import MasterKeys, SqlEventStore, SqlKeyStore
from projections import ProjectionGroup, Table, on, read_view, rebuild, sql_view, view, view_changes
from projections.errors import InvalidDefinition, OffsetsLost, ProjectionError
from projections.logs.layers import LogWithErasures
from projections.spark.views.view_functions import view_columns
from projections.stores.sqlite import SqliteTableStore
from projections.testing.memory_log import MemoryLog
from projections.testing.trial import ViewTrial
from tests.conformance.guests import Guest
from tests.conformance.time_join_views import as_of, clicks, searches

registered, renamed = on(Guest.Registered), on(Guest.Renamed)
guests = Table.from_events(
    Guest,
    key="guest_id",
    columns={"name": [registered.take("name"), renamed.take("name")], "plan": registered.take("plan")},
)
windows = sql_view(
    "windows",
    "SELECT session, window(timestamp_micros(moment), '10 microseconds').start AS start, count(*) AS searches"
    " FROM searches GROUP BY session, window(timestamp_micros(moment), '10 microseconds')",
    tables={"searches": searches},
)


@view(key="guest_id")
def cards(guests):
    return guests.select("guest_id", "name", "plan")


per_session = sql_view(
    "per_session", "SELECT session, count(*) AS windows FROM windows GROUP BY session", tables={"windows": windows}
)
GROUP = ProjectionGroup("past", [windows, as_of("latest"), cards, per_session])
NAMES = ("windows", "latest", "cards")
BEGUN = datetime(2026, 1, 1, tzinfo=UTC)


def step(trial, chance, number):
    for table, column in ((searches, "term"), (clicks, "page")):
        row = {
            "id": chance.randrange(12),
            "session": chance.randrange(3),
            "moment": chance.randrange(40),
            column: number,
        }
        trial.put(table, row) if chance.random() < 0.8 else trial.delete(table, {"id": row["id"]})
    happened = Guest.Registered(name=f"Guest {number}") if number % 2 == 0 else Guest.Renamed(name=f"Another {number}")
    trial.record(f"guest-{number // 2}", happened, time=BEGUN + timedelta(minutes=number))


@pytest.fixture
def keys(tmp_path):
    url = f"sqlite:///{tmp_path / 'keys.db'}"
    with closing(SqlEventStore(url)) as tables:
        tables.create_tables()
    return SqlKeyStore(url, MasterKeys({"trial": secrets.token_bytes(32)}))


def test_a_view_at_twenty_places_is_what_the_live_view_was_there_but_for_erased_values(small, tmp_path, keys):
    chance, seen = random.Random(5), []
    with ViewTrial(small, GROUP, tmp_path, keys=keys) as trial:
        for number in range(20):
            step(trial, chance, number)
            trial._runner.catch_up()
            progress = {topic: trial._runner.progress[topic] for topic in GROUP.topics}
            name = NAMES[number % len(NAMES)]
            seen.append((progress, name, trial.rows(name)))
        keys.erase("3")
        for progress, name, rows in seen:
            expected = [erased(row) if row.get("guest_id") == "3" else row for row in rows]
            found = read_view(trial._environment, GROUP, name, at=progress)
            assert sorted(map(str, found.to_pylist())) == sorted(map(str, expected)), (progress, name)
        looks_back(trial, seen)
        for name in NAMES:
            cut = {topic: {0: chance.randint(1, parts[0])} for topic, parts in seen[-1][0].items()}
            with rebuilt(trial, cut, tmp_path / f"{name}.db") as right:
                found = read_view(trial._environment, GROUP, name, at=cut).to_pylist()
                assert sorted(map(str, found)) == right(name), cut


@contextmanager
def rebuilt(trial, cut, file):
    """The rows of a rebuild of the log cut at a place, wherever that is within a batch."""
    whole = trial._environment.log
    log = MemoryLog(whole.log._schemas)
    log._topics = {topic: records[: cut[topic][0]] for topic, records in whole.log._topics.items()}
    log._headers = whole.log._headers
    with closing(SqliteTableStore(file)) as store:
        store.prepare()
        environment = dataclasses.replace(trial._environment, store=store, log=LogWithErasures(log, whole.keys))
        rebuild(environment, GROUP)
        _, layout = store.serving(GROUP, view_columns(environment.spark, GROUP))

        def rows(name):
            place = layout.views[name]
            batches = store.target(place.view).fetch(place.columns, order_by=place.definition.key)
            return sorted(str(row) for batch in batches for row in batch.to_pylist())

        yield rows


def erased(row):
    return row | {"name": "(erased)" if row["name"].startswith("Guest") else "(gone)"}


def looks_back(trial, seen):
    """A time, a condition, a table, and two moments compared."""
    environment, (last, _, _) = trial._environment, seen[-1]
    at_six = read_view(environment, GROUP, "cards", at=BEGUN + timedelta(minutes=6), where="guest_id > 0", most=2)
    assert at_six.to_pylist() == [
        {"guest_id": "1", "name": "Another 3", "plan": "basic"},
        {"guest_id": "2", "name": "Another 5", "plan": "basic"},
    ]
    with pytest.raises(InvalidDefinition, match="which no erasure would reach in 'cards_then'"):
        read_view(environment, GROUP, "cards", at=last, into="cards_then")
    with pytest.raises(ProjectionError):
        read_view(environment, GROUP, "latest", at=last, where="search_id / 0 = 1", into="latest_then")
    at_four = read_view(environment, GROUP, "latest", at=seen[3][0], into="latest_then")
    with environment.store.looking() as connection:
        stored = connection.execute(sa.text("SELECT session, search_id, click_id FROM latest_then")).all()
    assert sorted(map(tuple, stored)) == sorted(tuple(row.values()) for row in at_four.to_pylist())
    with pytest.raises(InvalidDefinition, match="has the name of a table of this database"):
        read_view(environment, GROUP, "latest", at=last, into="latest_then")
    with pytest.raises(InvalidDefinition, match="reads no offset 99 of topic 'guest'"):
        read_view(environment, GROUP, "cards", at={"guest": {0: 99}})
    with pytest.raises(InvalidDefinition, match="has no time zone"):
        read_view(environment, GROUP, "cards", at=datetime(2026, 1, 1))
    with pytest.raises(InvalidDefinition, match="there is no column 'no_column'"):
        read_view(environment, GROUP, "cards", at=last, where="no_column = 1")
    changes = view_changes(environment, GROUP, "cards", start={"guest": {0: 18}}, end=last)
    assert (changes.rows_before, changes.rows_after) == (9, 10)
    (added,) = changes.changed
    assert (added.row.one, added.row.other["name"]) == (None, "Another 19")
    assert [(record.topic, record.offset) for record in added.records] == [("guest", 19)]
    first = read_view(environment, GROUP, "latest", at=seen[3][0]).to_pylist()
    then = read_view(environment, GROUP, "latest", at=last).to_pylist()
    between = view_changes(environment, GROUP, "latest", start=seen[3][0], end=last)
    differing = {row["search_id"] for row in first + then if not (row in first and row in then)}
    assert {one.row.key["search_id"] for one in between.changed} == differing
    assert all(one.records for one in between.changed)
    counted = view_changes(environment, GROUP, "per_session", start=seen[3][0], end=last)
    assert counted.changed
    assert {record.topic for one in counted.changed for record in one.records} == {searches.topic}


class Compacted(MemoryLog):
    """A log whose captured topics lost the records that compaction removes up to a place."""

    def __init__(self, log, upto):
        super().__init__(log._schemas)
        self._topics, self._headers, self._upto = log._topics, log._headers, upto

    def cleanup_policies(self, topics):
        return dict.fromkeys(topics, "compact")

    def fetch(self, offsets, *, headed=False):
        rows, last = super().fetch(offsets, headed=headed), {}
        for topic, records in self._topics.items():
            last |= {(topic, key): offset for offset, (key, _) in enumerate(records[: self._upto])}
        keep = [
            offset >= self._upto or last[topic, key] == offset
            for topic, offset, key in zip(*(rows[c].to_pylist() for c in ("topic", "offset", "key")), strict=True)
        ]
        return rows.filter(pa.array(keep, pa.bool_()))


def test_a_past_that_compaction_has_removed_is_refused_with_where_it_begins(small, tmp_path):
    group = ProjectionGroup("compacted", [windows])
    with ViewTrial(small, group, tmp_path) as trial:
        for moment, id in ((1, 1), (2, 1), (3, 2), (4, 2), (5, 2)):
            trial.put(searches, {"id": id, "session": 1, "moment": moment, "term": 0})
        environment = dataclasses.replace(trial._environment, log=Compacted(trial._environment.log, 3))
        with pytest.raises(OffsetsLost, match="the topic is compacted: its past is whole from offset 3"):
            read_view(environment, group, "windows", at={searches.topic: {0: 1}})
        for place in (0, 3, 4):
            whole = read_view(trial._environment, group, "windows", at={searches.topic: {0: place}})
            assert read_view(environment, group, "windows", at={searches.topic: {0: place}}) == whole
