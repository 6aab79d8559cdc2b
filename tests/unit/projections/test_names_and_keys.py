"""Names in SQL, keys of views and keys of records: which are taken, and which are refused."""

from __future__ import annotations

import datetime as dt
import json
import re
import uuid
from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any

import pytest
import sqlalchemy as sa

from eventstore import Aggregate, Personal, event
from projections import ProjectionGroup, Table, on, sql_view, view
from projections.declaring.views import View, ViewTable
from projections.errors import InvalidDefinition
from projections.stores.compared import key_decoder, key_text
from projections.stores.view_changes import not_of_the_root, returned_key
from tests.hostile_names import HOSTILE

PLAIN = Table.from_changelog(sa.Table("t", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True)), topic="t")
# Read apart from what the code under test says it reads.
HARMLESS = re.compile(r"[a-z][a-z0-9_]{0,39}\Z", re.ASCII)
OF_COLUMNS = re.compile(r"[a-zA-Z][a-zA-Z0-9_]{0,39}\Z", re.ASCII)


def of_a_column(name):
    model = sa.Table("t", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column(name, sa.Integer))
    return Table.from_changelog(model, topic="t")


def of_a_view(name):
    def function(plain):
        return plain

    function.__name__ = name
    return view(key="id", tables={"plain": PLAIN})(function)


def of_a_table(name):
    quoted = name.replace("`", "``")
    return sql_view("harmless", f"SELECT id FROM `{quoted}`", tables={name: PLAIN})


COLUMNS = ("a column",)
PLACES = {
    "a table": of_a_table,
    "a column": of_a_column,
    "a view": of_a_view,
    "a view in SQL": lambda name: sql_view(name, "SELECT id FROM plain", tables={"plain": PLAIN}),
    "a group": lambda name: ProjectionGroup(name, [of_a_view("harmless")]),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_name_that_could_be_anything_else_in_sql_is_refused(place):
    harmless = OF_COLUMNS if place in COLUMNS else HARMLESS
    declare, others = PLACES[place], [name for name in HOSTILE if harmless.match(name)]
    tried = [name for name in HOSTILE if name or place != "a column"]  # SQLAlchemy has no column without a name
    assert len(set(tried)) >= 200
    for name in [name for name in tried if name not in others]:
        with pytest.raises(InvalidDefinition) as caught:
            declare(name)
        assert "not a usable name" in caught.value.message, name
    for name in others:  # such as SELECT in lower case, a name like any other: tests/conformance/test_names_of_views.py
        declare(name)


def by_a_group(name):
    def groups(plain):
        return plain

    return view(by=name, tables={"plain": PLAIN})(groups)


def test_a_column_that_is_not_there_is_refused_by_any_name():
    for name in HOSTILE:
        if name != "id":
            with pytest.raises(InvalidDefinition):
                by_a_group(name)


# ---- what the error of a wrong key shows


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


# ---- keys of records as the texts by which a comparison knows them


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7"),
        (True, "true"),
        (Decimal("1.500"), "1.5"),
        (Decimal("-0.00"), "0"),
        (Decimal("100"), "100"),
        (Decimal("12345678901234567890123456789.10"), "12345678901234567890123456789.1"),
        (b"\x00\xff", "00ff"),
        (dt.date(2024, 2, 29), "2024-02-29"),
        (dt.datetime(2024, 1, 2, 3, 4, 5), "2024-01-02 03:04:05"),
        (dt.datetime(2024, 1, 2, 3, 4, 50, 500000, dt.UTC), "2024-01-02 03:04:50.5"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ("a b", "a b"),
    ],
)
def test_one_value_has_one_text(value: Any, text: str) -> None:
    assert key_text(value) == text


def test_the_key_of_a_record_is_read_by_the_types_of_the_table() -> None:
    columns = [sa.Column(n, t, primary_key=True) for n, t in (("b", sa.Uuid), ("a", sa.Numeric(5, 2)))]
    table = Table.from_changelog(sa.Table("t", sa.MetaData(), *columns), topic="t.public.t")
    key = {"a": "1.50", "b": "00000000-0000-0000-0000-000000000001"}
    assert key_decoder(table)(json.dumps(key).encode(), "here") == (key["b"], "1.5")
