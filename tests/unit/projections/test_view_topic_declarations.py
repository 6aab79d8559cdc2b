"""View topics are checked when they are declared, and where there is no broker to have them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa

from projections import FinalResults, FinalTopic, ProjectionGroup, Table, ViewTopic, sql_view, view
from projections.errors import InvalidDefinition
from projections.spark.reading.store_source import StoreLog
from tests.integration.tickets import DECLARED, Ticket

tickets = Table.from_events(Ticket, key="ticket_id", columns=DECLARED)
MODEL = sa.Table(
    "model", sa.MetaData(), sa.Column("a", sa.Text, primary_key=True),
    sa.Column("b", sa.BigInteger, primary_key=True, nullable=True), sa.Column("c", sa.Date),
)  # fmt: skip


def shown(topic, name="shown", results=None):
    final = FinalResults("at", after="1 hour", topic=results)
    query = "SELECT ticket_id, hours FROM tickets"
    return sql_view(name, query, tables={"tickets": tickets}, topic=topic, final=final if results else None)


def test_a_view_names_its_topic_and_the_topic_is_compacted_with_a_lag():
    @view(key="ticket_id", topic=ViewTopic("tickets-shown", 7, timedelta(hours=6)))
    def one(tickets):
        return tickets

    assert one.topic.spec.partitions == 7
    lag, week = str(6 * 3_600_000), str(7 * 24 * 3_600_000)
    assert one.topic.spec.config == {
        "cleanup.policy": "compact", "retention.ms": "-1", "retention.bytes": "-1",
        "min.compaction.lag.ms": lag, "delete.retention.ms": week,
        "max.message.bytes": str(16 << 20),
    }  # fmt: skip
    assert shown("tickets-shown").topic == ViewTopic("tickets-shown")


def test_a_topic_is_part_of_what_a_view_means_and_no_topic_changes_nothing():
    without, named, other = shown(None), shown("one"), shown("other")
    assert "topic" not in without.signature().rpartition("|")[2]
    assert len({found.signature() for found in (without, named, other)}) == 3


def test_the_topic_of_final_results_is_never_compacted_and_loses_nothing():
    assert FinalResults("at", after="1 hour").published is None
    assert FinalResults("at", after="1 hour", topic="bills").published == FinalTopic("bills")
    spec = FinalTopic("bills", 7).spec
    assert (spec.name, spec.partitions) == ("bills", 7)
    assert spec.config == {
        "cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1", "max.message.bytes": str(16 << 20),
    }  # fmt: skip


def test_the_topic_of_final_results_is_part_of_what_a_view_means_and_the_promise_is_not():
    named, other, rows = shown(None, results="one"), shown(None, results="other"), shown("one")
    assert len({found.signature() for found in (shown(None), named, other, rows)}) == 4
    longer = replace(named, final=FinalResults("at", after="2 hours", topic=FinalTopic("one", 9)))
    assert longer.signature() == named.signature()


@pytest.mark.parametrize(
    "topic",
    [lambda: ViewTopic("no spaces"), lambda: ViewTopic("a" * 250), lambda: ViewTopic(".."),
     lambda: ViewTopic("x", 0), lambda: ViewTopic("x", 1, timedelta(0)), lambda: shown("é"),
     lambda: FinalTopic("no spaces"), lambda: FinalTopic("x", 0), lambda: shown(None, results="é")],
)  # fmt: skip
def test_what_cannot_be_the_topic_of_a_view_is_refused(topic):
    with pytest.raises(InvalidDefinition) as caught:
        topic()
    assert caught.value.remedy


def test_two_views_do_not_fill_one_topic_and_no_group_reads_what_it_fills():
    with pytest.raises(InvalidDefinition, match="is filled by two views"):
        ProjectionGroup("g", [shown("one"), shown("one", "again")])
    with pytest.raises(InvalidDefinition, match="which reads it too"):
        ProjectionGroup("g", [shown(tickets.topic)])


@pytest.mark.parametrize(
    ("views", "words"),
    [([shown(None, results="one"), shown(None, "again", results="one")], "is filled by two views of group 'g'"),
     ([shown("one"), shown(None, "again", results="one")], "is filled by two views of group 'g'"),
     ([shown("one", results="one")], "is filled with the rows and the final results of view 'shown' of group 'g'"),
     ([shown(None, results=tickets.topic)], "is filled by group 'g', which reads it too")],
)  # fmt: skip
def test_the_topic_of_final_results_is_filled_by_nothing_else(views, words):
    with pytest.raises(InvalidDefinition) as caught:
        ProjectionGroup("g", views)
    assert words in caught.value.message


def test_a_table_of_a_view_topic_has_the_models_key_and_what_may_be_null_of_it():
    found = Table.from_view_topic(MODEL, topic="somewhere")
    assert (found.topic, found.key, found.nullable) == ("somewhere", ("a", "b"), ("b",))
    assert {name: kind.ddl for name, kind in found.columns.items()} == {"a": "string", "b": "bigint", "c": "date"}
    assert found.key_may_be_null
    assert found.row_key == ("_record_key",)


def test_a_log_without_a_broker_has_no_view_topics_and_no_dead_letters(tmp_path):
    log = StoreLog(str(tmp_path / "shop.db"))
    with pytest.raises(InvalidDefinition, match="published to Kafka"):
        log.view_topics()
    with pytest.raises(InvalidDefinition, match="a store of its own file has none") as caught:
        log.dead_letters(["order"], group="shop")
    assert "bad_records='skip'" in caught.value.remedy
