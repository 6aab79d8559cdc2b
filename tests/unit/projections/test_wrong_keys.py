"""What the error of a wrong key shows: its columns, and its values where the view is given nothing personal."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import pytest
import sqlalchemy as sa

from eventstore import Aggregate, Personal, event
from projections import Table, on, view
from projections.declaring.views import View, ViewTable
from projections.stores.differences import not_of_the_root, returned_key

SENTINEL = "ann@example.org"


class Person(Aggregate):
    @event
    class Joined:
        city: str
        email: Annotated[str, Personal(erased="(erased)")]


def people(*columns: str) -> Table:
    named = {column: on(Person.Joined).take(column) for column in columns}
    return Table.from_events(Person, key="person_id", columns=named, name="people")


def over(table: Table | View) -> View:
    @view(key="person_id", tables={"people": table})
    def shown(people):
        return people

    return shown


MODEL = sa.Table("people", sa.MetaData(), sa.Column("person_id", sa.Text, primary_key=True))
CLEAR, PERSONAL = over(people("city")), over(people("city", "email"))
ROWS = ViewTable(name="people", topic="", key=("person_id",), columns=people("city").columns, view=PERSONAL)
OPEN = {
    "events": CLEAR,
    "a captured table": over(Table.from_changelog(MODEL, topic="people")),
    "a view of clear events": over(CLEAR),
}
CLOSED = {
    "personal events": PERSONAL,
    "a view of personal events": over(PERSONAL),
    "the rows of a view of personal events": replace(CLEAR, tables={"people": ROWS}),
    "another group's topic": over(Table.from_view_topic(MODEL, topic="people")),
}


@pytest.mark.parametrize("declared", OPEN.values(), ids=OPEN)
def test_a_wrong_key_is_shown_with_its_column(declared: View) -> None:
    assert f"returned key person_id={SENTINEL!r} twice" in returned_key(declared, (SENTINEL,)).message
    assert f"returned key person_id={SENTINEL!r}, which" in not_of_the_root(declared, (SENTINEL,)).message


@pytest.mark.parametrize("declared", CLOSED.values(), ids=CLOSED)
def test_a_wrong_key_of_a_view_that_is_given_personal_values_is_told_by_its_column(declared: View) -> None:
    for error in (returned_key(declared, (SENTINEL,)), not_of_the_root(declared, (SENTINEL,))):
        assert "returned key person_id=***" in error.message
        assert SENTINEL not in f"{error} {error.remedy} {error.place}"


def test_every_column_of_a_key_is_named_and_a_null_is_no_personal_value() -> None:
    several = replace(PERSONAL, key=("person_id", "city"))
    assert "returned key person_id=***, city=None as null" in returned_key(several, (SENTINEL, None)).message
