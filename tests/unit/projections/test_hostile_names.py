"""T12 for tables, columns, views and groups: what may become a SQL name is of a few letters; all else is refused."""

from __future__ import annotations

import re

import pytest
import sqlalchemy as sa

from projections import ProjectionGroup, Table, sql_view, view
from projections.errors import InvalidDefinition
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
    for name in others:  # such as SELECT in lower case, a name like any other: tests/conformance/test_quoted_names.py
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
