"""Final results never change, so nothing that an erasure has to reach may be in them."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

import pytest

from eventstore import Aggregate, Personal, event
from projections import FinalResults, ProjectionGroup, Table, on, view
from projections.errors import InvalidDefinition

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
