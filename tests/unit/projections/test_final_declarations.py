"""Where final results may be declared: never of personal values, and their topics beside a database and a broker."""

from __future__ import annotations

import datetime as dt
from contextlib import closing
from types import SimpleNamespace
from typing import Annotated

import pytest

from eventstore import Aggregate, Personal, event
from projections import FinalResults, ProjectionGroup, Table, on, view
from projections.errors import InvalidDefinition
from projections.outputs.publishing import prepare_topics
from projections.spark.reading.store_source import StoreLog
from projections.stores.sqlite import SqliteTableStore

FINAL = FinalResults("joined_at", after="1 hour")


class Member(Aggregate):
    @event
    class Joined:
        joined_at: dt.datetime
        email: Annotated[str, Personal(erased="(erased)")]


def members(*columns):
    named = {column: on(Member.Joined).take(column) for column in columns}
    return Table.from_events(Member, key="member_id", columns=named, name="members")


def shown(table, final=None):
    @view(key="member_id", tables={"members": table}, final=final)
    def shown(members):
        return members

    return shown


def closed(table):
    @view(key="member_id", tables={"shown": table}, final=FINAL)
    def closed(shown):
        return shown

    return closed


@pytest.mark.parametrize(
    "declared",
    [shown(members("joined_at", "email"), FINAL), closed(shown(members("joined_at", "email")))],
    ids=["a table", "a view of one"],
)
def test_final_results_of_personal_values_are_refused(declared):
    with pytest.raises(InvalidDefinition, match="no erasure changes, and reads personal column 'email'") as caught:
        ProjectionGroup("members", [declared])
    assert caught.value.remedy.startswith("let the view read a table that is declared without the column")
    assert f"view {declared.name}" in caught.value.place


def test_final_results_of_the_other_columns_are_not():
    ProjectionGroup("members", [closed(shown(members("joined_at")))])
    ProjectionGroup("members", [shown(members("joined_at", "email"))])


def test_a_topic_of_final_results_needs_a_broker(tmp_path):
    final = FinalResults("joined_at", after="1 hour", topic="joined")
    group = ProjectionGroup("members", [shown(members("joined_at"), final)])
    with closing(SqliteTableStore(tmp_path / "views.db")) as store:
        store.prepare()
        with pytest.raises(InvalidDefinition, match="views with a topic are published to Kafka") as caught:
            prepare_topics(SimpleNamespace(store=store, log=StoreLog(str(tmp_path / "shop.db"))), group)
    assert "leave topic=… away" in caught.value.remedy


def test_final_results_without_a_promise_say_what_to_promise():
    with pytest.raises(InvalidDefinition, match="final results on 'window_end' without a promise") as refused:
        FinalResults("window_end")
    assert "after=" in refused.value.remedy
