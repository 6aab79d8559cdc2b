"""A view in its database, in its topic and in a table of Delta Lake at once: the same rows in all three."""

from __future__ import annotations

import dataclasses
import uuid
from decimal import Decimal

import pytest

from projections import ProjectionGroup, Table, open_runner, read_view, rebuild, view
from projections.outputs.publishing import ViewPublisher
from projections.spark.lakehouse.store import DeltaTableStore
from tests.integration.log_writer import LogWriter
from tests.integration.rebuild_watching import Killed, opened
from tests.integration.test_view_topics import TOPIC_ROWS, die, folded, open_tickets, shown, topic_of
from tests.integration.tickets import Ticket

pytestmark = pytest.mark.faults  # a batch takes seconds in Delta; tests/integration/test_view_topics.py is short
COLUMNS = ("ticket_id", "hours")


@pytest.fixture
def env(environment):
    return environment()


@pytest.fixture
def writer(env):
    return LogWriter(env.log.settings, Ticket)


@pytest.fixture
def lake(env, spark, tmp_path):
    return dataclasses.replace(env, store=DeltaTableStore(spark, f"delta:{tmp_path}/lake"))


def in_the_lake(writer):
    """A group that keeps the rows of the topic."""
    rows = Table.from_view_topic(TOPIC_ROWS, topic=topic_of(writer))

    @view(key="ticket_id", tables={"rows": rows})
    def kept_rows(rows):
        return rows

    return ProjectionGroup(f"lake_{uuid.uuid4().hex[:8]}", [kept_rows])


def lake_rows(lake, group):
    found = read_view(lake.spark, lake.store.place, group=group.name, view="kept_rows").select(*COLUMNS).collect()
    return {row["ticket_id"]: {"ticket_id": row["ticket_id"], "hours": str(row["hours"])} for row in found}


def test_three_outputs_are_equal_through_batches_a_kill_and_a_cut_over(env, lake, writer, monkeypatch):
    group, kept = open_tickets(writer, columns=COLUMNS), in_the_lake(writer)

    def all_three():
        return shown(env), folded(env, writer), lake_rows(lake, kept)

    writer.send(opened(writer, 0, 30))
    rebuild(env, group)
    with open_runner(env, group) as runner:
        rebuild(lake, kept)
        one, *others = all_three()
        assert (len(one), others) == (30, [one, one])
        writer.send([writer.event(f"t{number}", Ticket.Closed()) for number in range(5)])
        writer.send(opened(writer, 30, 3))
        with monkeypatch.context() as patched:
            patched.setattr(ViewPublisher, "publish", die)
            with pytest.raises(Killed):
                runner.catch_up()
    with open_runner(lake, kept) as reader:
        assert reader.catch_up() == []
        database, topic, table = all_three()
        assert (len(database), topic == table == one) == (28, True)  # the others do not show what is not published
        with open_runner(env, group):
            reader.catch_up()
        one, *others = all_three()
        assert (len(one), others) == (28, [one, one])
        fewer = open_tickets(writer, columns=COLUMNS, version=2, least=2)
        writer.send([writer.event("t33", Ticket.Opened(customer_id=1, hours=Decimal(3)))])
        rebuild(env, fewer)
        with open_runner(env, fewer):
            reader.catch_up()
        one, *others = all_three()
        assert (set(one), others) == ({"t33"}, [one, one])
