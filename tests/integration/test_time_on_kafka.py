"""Windows and joins by time over real topics: quiet partitions and quiet tables hold nothing back."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from eventstore.kafka.admin import ensure_topics
from eventstore.kafka.producer import OutgoingRecord, RecordProducer
from eventstore.topics import changelog_topic
from projections import (
    FinalResults,
    ProjectionGroup,
    Table,
    open_runner,
    rebuild,
    sql_view,
    tumbling,
    verify,
    windowed,
)
from projections.lifecycle import final_results
from projections.stores import finals
from tests.waiting import wait_until

PAGES = sa.Table(
    "pages", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("title", sa.Text)
)  # fmt: skip
VISITS = sa.Table(
    "visits", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("page", sa.BigInteger),
    sa.Column("seen", sa.DateTime(timezone=True)),
)  # fmt: skip
LEFT = """
    SELECT v.window_start, v.page, max(v.window_end) AS window_end, count(*) AS visits
    FROM by_second v GROUP BY v.window_start, v.page"""


class Site:
    """Two topics, of which one has eight partitions, and the views over them."""

    def __init__(self, environment):
        self.environment, own = environment, f"site-{uuid.uuid4().hex[:8]}"
        self.topics = {"visits": f"{own}.public.visits", "pages": f"{own}.public.pages"}
        settings = environment.log.settings
        ensure_topics(settings, [changelog_topic(self.topics["visits"], partitions=8)])
        ensure_topics(settings, [changelog_topic(self.topics["pages"], partitions=2)])
        self._producer, self._position = RecordProducer(settings), 0
        visits = Table.from_changelog(VISITS, topic=self.topics["visits"])
        pages = Table.from_changelog(PAGES, topic=self.topics["pages"])
        by_second = windowed("by_second", visits, tumbling("1 second"), on="seen")
        counted = sql_view(
            "counted", LEFT, tables={"by_second": by_second}, final=FinalResults("window_end", after="1 second")
        )
        titled = sql_view(
            "titled",
            "SELECT v.id, v.page, p.title FROM visits v LEFT JOIN pages p ON v.page = p.id",
            tables={"visits": visits, "pages": pages},
            references={"page": "pages"},
        )
        self.group = ProjectionGroup("site", [counted, titled])

    def put(self, table, id, **values):
        self._position += 1
        source = {"connector": "postgresql", "lsn": self._position, "snapshot": "false"}
        change = {"op": "u", "before": None, "after": {"id": id, **values}, "source": source}
        key, value = (json.dumps(one).encode() for one in ({"id": id}, change))
        self._producer.send([OutgoingRecord(topic=self.topics[table], key=key, value=value)])

    def visit(self, id, *, seconds_ago=0.0):
        seen = datetime.now(UTC) - timedelta(seconds=seconds_ago)
        self.put("visits", id, page=7, seen=seen.isoformat())

    def given(self):
        with self.environment.store.looking() as connection:
            rows = list(finals.results_of(connection, "site", "counted"))
        return sum(json.loads(row["value"])["visits"] for row in rows)

    def titles(self):
        with self.environment.store.transaction() as connection:
            return {row.id: row.title for row in connection.execute(sa.text("SELECT id, title FROM titled"))}


@pytest.fixture
def site(environment):
    return Site(environment(None))


def test_one_row_in_eight_partitions_is_final_by_the_clock(site, monkeypatch):
    monkeypatch.setattr(final_results, "_LOOK_SECONDS", 0.0)
    site.put("pages", 7, title="seven")
    rebuild(site.environment, site.group)
    with open_runner(site.environment, site.group) as runner:
        site.visit(1)  # in one partition of eight, and nothing after it; the other topic is quiet

        def given():
            runner.run_once()
            return site.given() == 1

        wait_until(given)
    assert all(verdict.equal for verdict in verify(site.environment, site.group).values())


def test_a_restart_with_lag_on_one_side_alone_goes_on(site):
    rebuild(site.environment, site.group)
    with open_runner(site.environment, site.group) as runner:
        site.put("pages", 7, title="seven")
        site.visit(1, seconds_ago=60)
        runner.catch_up()
    for id in range(2, 30):
        site.visit(id, seconds_ago=id)
    with open_runner(site.environment, site.group) as runner:
        while runner.run_once(max_records=5):
            pass
    assert site.titles() == dict.fromkeys(range(1, 30), "seven")
    site.put("pages", 7, title="acht")
    with open_runner(site.environment, site.group) as runner:
        runner.catch_up()
    assert set(site.titles().values()) == {"acht"}
