"""Rows behind a view's row, found by its references in what a generation stores; no Spark."""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from factfold.cli.entry import application
from projections import ProjectionGroup, Table, sql_view, view
from projections.declaring.columns import ColumnType
from projections.declaring.group import ERASURES
from projections.declaring.views import Planned, noted_references, with_noted
from projections.errors import InvalidDefinition
from projections.stores.behind_rows import rows_behind, view_rows
from tests.conformance.ticket_batches import COLUMNS, GROUP, one_ticket
from tests.integration.tickets import DECLARED, Ticket

pytestmark = pytest.mark.postgres_in_faults

tickets = Table.from_events(Ticket, key="ticket_id", columns=DECLARED)
by_customer = sql_view(
    "by_customer",
    "SELECT customer_id, count(*) AS n FROM tickets GROUP BY customer_id",
    tables={"tickets": tickets},
    by="customer_id",
)


@pytest.fixture
def filled(store):
    """A ticket of customer 1, as a batch leaves it."""
    return one_ticket(store)


@pytest.mark.both_databases
def test_a_row_is_followed_from_its_key_by_the_references(store, filled):
    found = rows_behind(store, GROUP, filled.generation, "ticket_names", {"ticket_id": "t1"})
    assert [(row.table, row.reached) for row in found] == [
        ("ticket_names", "the key"), ("tickets", "the key"), ("customers", "id = 1"),
    ]  # fmt: skip
    _, ticket, customer = found
    assert (ticket.topic, ticket.offset, ticket.stream) == ("ticket", 4, "ticket-t1")
    assert (customer.topic, customer.offset, customer.stream) == ("shop.public.customers", 9, None)
    assert customer.values["name"] == "Ann"


def test_the_command_shows_the_rows_and_their_records(store, filled):
    def said(*words):
        given = ["projections", "why", "tests.conformance.ticket_batches:GROUP", "ticket_names", *words]
        return CliRunner().invoke(application(), [*given, "--views-url", f"sqlite:///{store.path}"])

    view_row, ticket, customer = json.loads(said("ticket_id=t1", "--json").output)
    assert (view_row["topic"], ticket["stream"], customer["values"]["name"]) == (None, "ticket-t1", "Ann")
    assert "customers by id = 1: id=1, name=Ann" in (text := said("ticket_id=t1").output)
    assert "(topic shop.public.customers, offset 9)" in text
    assert "has no row of ticket_id=t2" in str(said("ticket_id=t2").exception)
    assert "'t1' is no part of a key" in str(said("t1").exception)


def test_a_key_without_a_row_has_nothing_behind_it(store, filled):
    assert rows_behind(store, GROUP, filled.generation, "ticket_names", {"ticket_id": "t2"}) == []


def test_references_that_were_inferred_are_those_that_the_build_noted(store, filled):
    (declared,) = GROUP.views
    unknown = view(key="ticket_id", tables=declared.tables)(declared.function)
    assert isinstance(unknown.declared, Planned)
    assert with_noted(unknown, noted_references([declared])).references == declared.references
    group = ProjectionGroup("tickets", [unknown])
    with pytest.raises(InvalidDefinition, match="not known before Spark has planned it"):
        rows_behind(store, group, filled.generation, "ticket_names", {"ticket_id": "t1"})
    store.record(store.claim(filled), built={"references": noted_references([declared])})
    found = rows_behind(store, group, filled.generation, "ticket_names", {"ticket_id": "t1"})
    assert [row.table for row in found] == ["ticket_names", "tickets", "customers"]


@pytest.mark.parametrize(
    ("name", "key", "words"),
    [("nothing", {"ticket_id": "t1"}, "has no view 'nothing'"), ("ticket_names", {"id": "t1"}, "has no key of id")],
)
def test_an_unknown_view_or_key_is_refused(store, filled, name, key, words):
    with pytest.raises(InvalidDefinition, match=words):
        rows_behind(store, GROUP, filled.generation, name, key)


@pytest.mark.both_databases
def test_a_row_of_a_group_is_made_of_the_rows_of_its_partition(store):
    columns = {"by_customer": {"customer_id": ColumnType("long"), "n": ColumnType("long")}}
    group = ProjectionGroup("counted", [by_customer])
    run, layout = store.begin_generation(group, columns)
    at = {"_epoch": [0, 0], "_pos": [1, 2], "_offset": [1, 2], "_deleted": [False, False]}
    values = {"ticket_id": ["t1", "t2"], "customer_id": [7, 7], "hours": [Decimal(1)] * 2, "status": ["open"] * 2}
    typed = {name: pa.array(given, tickets.columns[name].arrow()) for name, given in values.items()}
    store.target(layout.tables["tickets"].state).append(pa.table({**typed, **at}))
    store.target(layout.views["by_customer"].view).append(pa.table({"customer_id": [7], "n": [2]}))
    store.index_generation(group, layout)
    found = rows_behind(store, group, run.generation, "by_customer", {"customer_id": "7"})
    assert [row.table for row in found] == ["by_customer", "tickets", "tickets"]
    assert {row.stream for row in found[1:]} == {"ticket-t1", "ticket-t2"}
    with pytest.raises(InvalidDefinition, match="'seven' is no long"):
        rows_behind(store, group, run.generation, "by_customer", {"customer_id": "seven"})


def test_rows_are_shown_up_to_a_limit_and_counted(store, filled):
    found = view_rows(store, "tickets", filled.generation, "ticket_names", limit=0)
    assert (found.columns, list(found.rows), found.total) == (tuple(COLUMNS["ticket_names"]), [], 1)
    assert len(view_rows(store, "tickets", filled.generation, "ticket_names").rows) == 1


def test_the_columns_that_the_build_noted_are_personal_and_without_a_note_all_but_the_key(store, filled):
    def personal():
        found = rows_behind(store, GROUP, filled.generation, "ticket_names", {"ticket_id": "t1"})
        shown = view_rows(store, "tickets", filled.generation, "ticket_names")
        return [row.personal for row in found], shown.personal

    assert personal() == ([(), (), ()], ())
    run = store.claim(filled)
    store.record(run, progress={**store.progress(run), ERASURES: {0: 0}})
    (view_row, *_), shown = personal()
    assert (view_row, shown) == (tuple(COLUMNS["ticket_names"])[1:], tuple(COLUMNS["ticket_names"]))
    store.record(
        run,
        built={"personal": {"views": {"ticket_names": ["hours"]}, "tables": {"tickets": [], "customers": ["name"]}}},
    )
    assert personal() == ([("hours",), (), ("name",)], ("hours",))
