"""Topics, final results and Delta tables of views are checked when they are declared."""

from __future__ import annotations

import datetime as dt
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Annotated

import sqlalchemy as sa

from eventstore import Aggregate, Personal, event
from projections import FinalResults, FinalTopic, ProjectionGroup, Table, ViewTopic, on, sql_view, view
from projections.declaring.group import check_topics
from projections.errors import TableStoreUnavailable
from projections.outputs.publishing import prepare_topics
from projections.spark.reading.store_source import StoreLog
from projections.stores.opening import open_table_store
from projections.stores.sqlite import SqliteTableStore
from tests.errors import raises, refused
from tests.integration.tickets import DECLARED, Ticket
from tests.rows import each_row

tickets = Table.from_events(Ticket, key="ticket_id", columns=DECLARED)
MODEL = sa.Table(
    "model", sa.MetaData(), sa.Column("a", sa.Text, primary_key=True),
    sa.Column("b", sa.BigInteger, primary_key=True, nullable=True), sa.Column("c", sa.Date),
)  # fmt: skip


class Guest(Aggregate):
    @event
    class Registered:
        email: Annotated[str, Personal(erased="")]
        joined_at: dt.datetime


def guests(*columns):
    named = {column: on(Guest.Registered).take(column) for column in columns}
    return Table.from_events(Guest, key="guest_id", columns=named, name="guests")


def of_tickets(**options):
    """A view of tickets that is a function."""

    @view(key="ticket_id", **options)
    def one(tickets):
        return tickets

    return one


def published(topic, name="published", *, results=None, lake=None):
    """A view of tickets, with the topics of its rows and of its final results, and its Delta table."""
    final = FinalResults("at", after="1 hour", topic=results) if results else None
    query = "SELECT ticket_id, hours FROM tickets"
    return sql_view(name, query, tables={"tickets": tickets}, topic=topic, final=final, lake=lake)


def in_a_lake(path, name="published"):
    return published(None, name, lake=path)


def finals_of(table, **options):
    """A view of guests whose results are final."""
    final = FinalResults("joined_at", after="1 hour", **options)
    return view(key="guest_id", tables={"guests": table}, final=final)(guests_shown)


def finals_of_a_view(table):
    shown = view(key="guest_id", tables={"guests": table})(guests_shown)
    return view(key="guest_id", tables={"guests": shown}, final=FinalResults("joined_at", after="1 hour"))(closed)


def guests_shown(guests):
    return guests


def closed(guests):
    return guests


def test_a_table_of_a_view_topic_has_the_models_key_and_what_may_be_null_of_it():
    found = Table.from_view_topic(MODEL, topic="somewhere")
    assert (found.topic, found.key, found.nullable) == ("somewhere", ("a", "b"), ("b",))
    assert {name: kind.ddl for name, kind in found.columns.items()} == {"a": "string", "b": "bigint", "c": "date"}
    assert found.key_may_be_null
    assert found.row_key == ("_record_key",)


def test_a_view_names_its_topic_and_the_topic_is_compacted_with_a_lag():
    one = of_tickets(topic=ViewTopic("tickets-shown", 7, timedelta(hours=6)))
    assert one.topic.spec.partitions == 7
    lag, week = str(6 * 3_600_000), str(7 * 24 * 3_600_000)
    assert one.topic.spec.config == {
        "cleanup.policy": "compact", "retention.ms": "-1", "retention.bytes": "-1",
        "min.compaction.lag.ms": lag, "delete.retention.ms": week,
        "max.message.bytes": str(16 << 20),
    }  # fmt: skip
    assert published("tickets-shown").topic == ViewTopic("tickets-shown")


def test_the_topic_of_final_results_is_never_compacted_and_loses_nothing():
    assert FinalResults("at", after="1 hour").published is None
    assert FinalResults("at", after="1 hour", topic="bills").published == FinalTopic("bills")
    spec = FinalTopic("bills", 7).spec
    assert (spec.name, spec.partitions) == ("bills", 7)
    assert spec.config == {
        "cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1", "max.message.bytes": str(16 << 20),
    }  # fmt: skip


def test_outputs_are_part_of_what_a_view_means_and_the_promise_of_results_is_not():
    assert "topic" not in published(None).signature().rpartition("|")[2]
    assert in_a_lake(None).signature() == published(None).signature()
    named = published(None, results="one")
    meant = [published(None), published("one"), published("other"), named, published(None, results="other")]
    meant += [in_a_lake("/lake/one"), in_a_lake("/lake/two")]
    assert len({found.signature() for found in meant}) == len(meant)
    longer = replace(named, final=FinalResults("at", after="2 hours", topic=FinalTopic("one", 9)))
    assert longer.signature() == named.signature()


def test_a_view_names_the_path_of_its_delta_table():
    one = of_tickets(lake="s3a://lake/tickets/")
    assert (one.lake, in_a_lake("/lake/one").lake, in_a_lake(None).lake) == ("s3a://lake/tickets", "/lake/one", None)
    assert published("one", lake="/lake/one").filled == ("one", "/lake/one")


def test_final_results_of_other_than_personal_columns_are_accepted():
    ProjectionGroup("guests", [finals_of_a_view(guests("joined_at"))])
    ProjectionGroup("guests", [view(key="guest_id", tables={"guests": guests("joined_at", "email")})(guests_shown)])


def group(*views):
    return lambda: ProjectionGroup("g", list(views))


def personal_in_a_lake():
    check_topics("g", ProjectionGroup("g", [in_a_lake("/lake/one")]).all_views, read=(), personal=True)


OF_PERSONS = (
    "no erasure changes, and reads personal column 'email'",
    "let the view read a table that is declared without the",
)
NO_PATHS = ["", "lake/one", "one", "delta:/lake/one", "/lake/no spaces", "s3a:", "s3a:lake"]
NO_OUTPUTS = {
    "a topic with a space": (lambda: ViewTopic("no spaces"), "", ""),
    "a topic of a long name": (lambda: ViewTopic("a" * 250), "", ""),
    "a topic of dots": (lambda: ViewTopic(".."), "", ""),
    "a topic without partitions": (lambda: ViewTopic("x", 0), "", ""),
    "a topic without a lag": (lambda: ViewTopic("x", 1, timedelta(0)), "", ""),
    "a topic with an accent": (lambda: published("é"), "", ""),
    "a topic of results with a space": (lambda: FinalTopic("no spaces"), "", ""),
    "a topic of results without partitions": (lambda: FinalTopic("x", 0), "", ""),
    "a topic of results with an accent": (lambda: published(None, results="é"), "", ""),
    "two views of one topic": (group(published("one"), published("one", "again")), "is filled by two views", ""),
    "a topic that the group reads": (group(published(tickets.topic)), "which reads it too", ""),
    "two views of one topic of results": (
        group(published(None, results="one"), published(None, "again", results="one")),
        "is filled by two views of group 'g'", ""),
    "rows of one view and results of another": (
        group(published("one"), published(None, "again", results="one")), "is filled by two views of group 'g'", ""),
    "rows and results of one view": (
        group(published("one", results="one")),
        "is filled with the rows and the final results of view 'published' of group 'g'", ""),
    "results in a topic that the group reads": (
        group(published(None, results=tickets.topic)), "is filled by group 'g', which reads it too", ""),
    "two views of one Delta table": (
        group(in_a_lake("/lake/one"), in_a_lake("/lake/one", "again")),
        "table '/lake/one' is filled by two views", ""),
    "personal values in a Delta table": (
        personal_in_a_lake, "versions of the table '/lake/one' would retain erased values", ""),
    **{f"a Delta table at {path!r}": (
        lambda path=path: in_a_lake(path), "a Delta table cannot be at", "lake='/lake/orders'") for path in NO_PATHS},
    "final results of personal values": (group(finals_of(guests("joined_at", "email"))), *OF_PERSONS),
    "final results of a view of personal values": (
        group(finals_of_a_view(guests("joined_at", "email"))), *OF_PERSONS),
    "final results without a promise": (
        lambda: FinalResults("window_end"), "final results on 'window_end' without a promise", "after="),
}  # fmt: skip


@each_row("declare, words, remedy", NO_OUTPUTS.values(), ids=NO_OUTPUTS)
def test_what_cannot_be_an_output_is_refused(declare, words, remedy):
    refused(declare, words, remedy or " ")


def test_a_url_of_delta_is_refused_with_the_output():
    with raises(TableStoreUnavailable, match="Delta Lake is an output of views", remedy="lake='/lake/orders'"):
        open_table_store("delta:/lake/views")


def test_a_log_without_a_broker_has_no_topics_and_no_dead_letters(tmp_path):
    log = StoreLog(str(tmp_path / "shop.db"))
    refused(log.view_topics, "published to Kafka", "")
    refused(lambda: log.dead_letters(["order"], group="shop"), "a store of its own file has none", "bad_records='skip'")
    with closing(SqliteTableStore(tmp_path / "views.db")) as store:
        store.prepare()
        final = ProjectionGroup("guests", [finals_of(guests("joined_at"), topic="joined")])
        refused(
            lambda: prepare_topics(SimpleNamespace(store=store, log=log), final),
            "views with a topic are published to Kafka", "leave topic=… away",
        )  # fmt: skip
