"""View topics are checked when they are declared, and where there is no broker to have them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa

from projections import FinalResults, FinalTopic, ProjectionGroup, Table, ViewTopic, sql_view, view
from projections.declaring.filled_topics import check_topics
from projections.errors import InvalidDefinition, TableStoreUnavailable
from projections.spark.reading.store_source import StoreLog
from projections.stores.opening import open_table_store
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


def in_a_lake(lake, name="shown", topic=None):
    query = "SELECT ticket_id, hours FROM tickets"
    return sql_view(name, query, tables={"tickets": tickets}, lake=lake, topic=topic)


def test_a_view_names_the_path_of_its_delta_table_and_the_path_is_part_of_what_it_means():
    @view(key="ticket_id", lake="s3a://lake/tickets/")
    def one(tickets):
        return tickets

    assert (one.lake, in_a_lake("/lake/one").lake, in_a_lake(None).lake) == ("s3a://lake/tickets", "/lake/one", None)
    assert len({found.signature() for found in (in_a_lake(None), in_a_lake("/lake/one"), in_a_lake("/lake/two"))}) == 3
    assert in_a_lake(None).signature() == shown(None).signature()
    assert in_a_lake("/lake/one", topic="one").filled == ("one", "/lake/one")


@pytest.mark.parametrize("path", ["", "lake/one", "one", "delta:/lake/one", "/lake/no spaces", "s3a:", "s3a:lake"])
def test_what_is_no_path_of_a_delta_table_is_refused(path):
    with pytest.raises(InvalidDefinition, match="a Delta table cannot be at") as caught:
        in_a_lake(path)
    assert "lake='/lake/orders'" in caught.value.remedy


def test_two_views_do_not_fill_one_delta_table_and_none_gets_personal_values():
    with pytest.raises(InvalidDefinition, match="table '/lake/one' is filled by two views"):
        ProjectionGroup("g", [in_a_lake("/lake/one"), in_a_lake("/lake/one", "again")])
    group = ProjectionGroup("g", [in_a_lake("/lake/one")])
    with pytest.raises(InvalidDefinition, match="versions of the table '/lake/one' would retain erased values"):
        check_topics("g", group.all_views, read=(), personal=True)


def test_a_url_of_delta_is_refused_with_the_output():
    with pytest.raises(TableStoreUnavailable, match="Delta Lake is an output of views") as caught:
        open_table_store("delta:/lake/views")
    assert "lake='/lake/orders'" in caught.value.remedy


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
