"""Definitions show themselves in one line, for notebooks, debuggers and failing assertions."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from projections import ProjectionGroup, Table, field, view
from sample_app import views
from sample_app.payments import branching


def captured(count):
    columns = (sa.Column(f"column_{n}", sa.Text) for n in range(count))
    return sa.Table("wide", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), *columns)


wide = Table.from_changelog(captured(100), topic="shop.public.wide")


@view(key="id")
def shown(wide):
    return wide.select("id")


SHOWN = {
    "<ChangelogTable shop.public.wide: id, column_0, column_1, column_2, column_3, column_4, column_5, column_6"
    " and 93 more>": wide,
    "<VersionTable w: id, column_0>": Table.versions_of(captured(1), topic="w"),
    "<ViewTopicTable v: id, column_0>": Table.from_view_topic(captured(1), topic="v"),
    "<ChangelogTable w: id, column_0, of some rows>": Table.from_changelog(captured(1), topic="w").where(
        field("id") > 1
    ),
    "<View shown: key id, of wide>": shown,
    "<ProjectionGroup wide_group: shown>": ProjectionGroup("wide_group", [shown]),
}


@pytest.mark.parametrize(("line", "definition"), SHOWN.items(), ids=lambda one: type(one).__name__)
def test_a_definition_is_one_line(line, definition):
    assert repr(definition) == line


@pytest.mark.parametrize("module", [views, branching])
def test_definitions_of_the_sample_app_are_short(module):
    kinds = ("ProjectionGroup", "View", "EventTable", "ChangelogTable", "Branches", "Subscription")
    found = [value for value in vars(module).values() if type(value).__name__ in kinds]
    assert found
    for one in found:
        assert repr(one).startswith(f"<{type(one).__name__} ")
        assert len(repr(one)) < 200
        assert "\n" not in repr(one)
