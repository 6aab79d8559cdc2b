"""Tables, views and groups are checked when they are declared; each refusal says what to write instead."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

import sqlalchemy as sa

from eventstore import Aggregate, Personal, event
from projections import ProjectionGroup, Table, branches, field, of_type, on, view
from projections.errors import InvalidDefinition
from tests.errors import raises, refused
from tests.integration.tickets import CUSTOMERS, DECLARED, REGIONS, Ticket
from tests.ledger import Refund
from tests.rows import each_row

tickets = Table.from_events(Ticket, key="ticket_id", columns=DECLARED)
customers = Table.from_changelog(CUSTOMERS, topic="shop.public.customers")
regions = Table.from_changelog(REGIONS, topic="shop.public.regions")
places = Table.from_changelog(
    sa.Table("places", sa.MetaData(), sa.Column("country", sa.Text, primary_key=True),
             sa.Column("city", sa.Text, primary_key=True)), topic="shop.public.places",
)  # fmt: skip


class Guest(Aggregate):
    @event
    class Registered:
        email: Annotated[str, Personal(erased="")]
        allergies: Annotated[list[str], Personal(erased=[])]
        joined_at: dt.datetime


class Moving(Aggregate):
    status: str = "none"

    @event
    class Moved:
        to: str


REFUNDED = {"paid": on(Refund.Paid).take("amount")}


def guests(*columns):
    named = {column: on(Guest.Registered).take(column) for column in columns}
    return Table.from_events(Guest, key="guest_id", columns=named, name="guests")


def captured(*names, key=True):
    columns = (sa.Column(name, sa.Integer) for name in names)
    model = sa.Table("t", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=key), *columns)
    return Table.from_changelog(model, topic="t")


def declared(function, *, name="some_view", **options):
    """A view over the tables of this module that the function's parameters name."""
    known = {"tickets": tickets, "customers": customers, "regions": regions, "others": customers, "places": places}
    taken = {parameter: known[parameter] for parameter in function.__code__.co_varnames if parameter in known}
    function.__name__ = name
    return view(tables=options.pop("tables", taken), **options)(function)


# ---- tables


def test_a_declared_table_has_its_key_and_the_types_of_the_event_fields():
    assert {name: column.ddl for name, column in tickets.columns.items()} == {
        "ticket_id": "string", "customer_id": "bigint", "hours": "decimal(18,4)", "status": "string",
    }  # fmt: skip


def test_a_table_without_columns_has_the_aggregates_state():
    evolved = Table.from_events(Ticket, key="ticket_id")
    assert list(evolved.columns) == ["ticket_id", "customer_id", "hours", "status"]
    assert evolved.setters is None


def test_a_changelog_table_takes_columns_and_key_from_the_model():
    assert regions.key == ("id",)
    assert regions.columns["rate"].ddl == "decimal(8,2)"
    assert regions.columns["opened"].ddl == "timestamp"


def test_a_condition_is_part_of_what_a_table_means():
    some = tickets.where(field("hours") > 3)
    assert some.signature() != tickets.signature() != tickets.where(field("hours") > 4).signature()
    assert some.where(field("status") == "open").signature() not in (some.signature(), tickets.signature())


def test_a_table_of_several_aggregates_is_a_view_of_theirs():
    together = Table.from_events(Ticket, Refund, name="together", key="ticket_id", columns={**DECLARED, **REFUNDED})
    assert list(together.tables) == ["together_ticket", "together_refund"]
    assert [list(table.columns) for table in together.tables.values()] == [
        ["ticket_id", *DECLARED], ["ticket_id", "paid"]
    ]  # fmt: skip


def together(*aggregates, **options):
    """A table of several aggregates."""
    return Table.from_events(*aggregates, **({"name": "together", "key": "ticket_id"} | options))


TWICE = {"hours": [on(Ticket.Opened).take("hours"), on(Refund.Paid).take("amount")]}
NO_TABLES = {
    "a field that is not there": (
        lambda: on(Ticket.Opened).take("custmer"), "no field 'custmer'", "customer_id, hours"),
    "a column of two types": (
        lambda: Table.from_events(
            Ticket, key="id", columns={"x": [on(Ticket.Opened).take("hours"), on(Ticket.Closed).set("no")]}),
        "different types", ""),
    "a setter of a foreign event": (
        lambda: Table.from_events(Ticket, key="id", columns={"x": on(Moving.Moved).set("yes")}),
        "no event of Ticket", ""),
    "a table without a primary key": (lambda: captured("a", key=False), "no primary key", ""),
    "a nested personal field": (
        lambda: on(Guest.Registered).take("allergies"), "only flat values are stored sealed", ""),
    "a fold in Python of personal fields": (
        lambda: Table.from_events(Guest, key="guest_id"), "could not be forgotten", ""),
    "a branch by a personal field": (
        lambda: branches(Guest, {"nameless": field("email").is_null()}, otherwise="named"), "a router sees it sealed",
        ""),
    "a condition on a column that is not there": (
        lambda: tickets.where(field("hour") > 3), "no column 'hour'", ""),
    "a condition of another kind": (
        lambda: tickets.where(field("hours") > "3"), "number cannot be compared with '3'", ""),
    "a condition on a part of what has none": (lambda: tickets.where(field("hours.a") == 3), "is no record", ""),
    "a condition on a type of event": (lambda: tickets.where(of_type(Ticket.Opened)), "no event type", ""),
    "a condition in Spark's SQL": (lambda: tickets.where("hours > 3"), "is not a predicate", ""),
    "a condition on versions": (
        lambda: Table.versions_of(CUSTOMERS, topic="shop.public.customers").where(field("id") > 1),
        "versions takes no condition", ""),
    "a condition on a personal column": (
        lambda: guests("email").where(field("email") == "a@b.c"), "'email' is personal", ""),
    "a list of aggregates": (lambda: together([Ticket, Refund]), "folded from aggregates, and is given", ""),
    "no aggregate": (lambda: together(), "folded from aggregates, and is given none", ""),
    "aggregates without a name": (lambda: together(Ticket, Refund, name=None), "stored as a view, and has no name", ""),
    "aggregates of a bad name": (lambda: together(Ticket, Refund, name="a b"), "not a usable name", ""),
    "aggregates of one topic": (lambda: together(Ticket, Refund, topic="tickets"), "come from one topic", ""),
    "an aggregate twice": (lambda: together(Ticket, Ticket), "come twice", ""),
    "aggregates of one name": (lambda: together(Ticket, type("Ticket", (Moving,), {}), Refund), "come twice", ""),
    "a column of none of the aggregates": (
        lambda: together(Ticket, Refund, columns={"x": on(Moving.Moved).set("yes")}),
        "events of none of the aggregates", ""),
    "a column of two aggregates": (
        lambda: together(Ticket, Refund, columns=TWICE), "set by events of Ticket and Refund", ""),
    "a column that both have": (
        lambda: together(Ticket, Moving), "column 'status' of Moving is one of Ticket already", ""),
    "a column that is the key of both": (
        lambda: together(Ticket, Moving, key="status"), "column 'status' of Ticket is its key too", ""),
    "a column that is the key": (
        lambda: together(Ticket, key="hours", columns=DECLARED), "column 'hours' of Ticket is its key too", ""),
    **{f"a column named {name!r}": (lambda name=name: captured(name), "not a usable name", "")
       for name in ('a"; DROP TABLE x; --', "a b", "A-b", "ü", "a" * 41, "a\x00b")},
}  # fmt: skip


@each_row("declare, words, remedy", NO_TABLES.values(), ids=NO_TABLES)
def test_what_cannot_be_a_table_is_refused(declare, words, remedy):
    refused(declare, words, remedy)


def test_the_code_of_a_refusal_names_its_cause():
    for declare, code in (
        (lambda: on(Ticket.Opened).take("custmer"), "unknown-column"),
        (lambda: tickets.where(field("hour") > 3), "unknown-column"),
        (lambda: tickets.where("hours > 3"), "invalid-predicate"),
    ):
        with raises(InvalidDefinition, code=code):
            declare()


# ---- views and groups


def test_a_view_finds_its_tables_by_parameter_name():
    @view(key="ticket_id")
    def ticket_details(tickets, customers, regions):
        return tickets

    assert list(ticket_details.tables.values()) == [tickets, customers, regions]


def test_a_fingerprint_changes_with_the_function_and_not_with_the_process():
    def group(function):
        return ProjectionGroup("tickets", [declared(function, key="ticket_id")])

    first = group(lambda tickets: tickets)
    assert first.fingerprint() == group(first.views[0].function).fingerprint()
    assert first.fingerprint() != group(lambda tickets: tickets.select("ticket_id")).fingerprint()


def test_a_function_without_a_source_is_known_by_its_code():
    def group(text):
        made = {}
        exec(compile(f"def one(tickets): return {text}", "<shell>", "exec"), made)  # as a shell runs it
        return ProjectionGroup("tickets", [declared(made["one"], key="ticket_id")])

    text = "tickets.where('ticket_id' in {'a', 'b', 'c'})"
    assert group(text).fingerprint() == group(text).fingerprint() != group(text.replace("'c'", "'d'")).fingerprint()


def test_a_view_over_partitions_has_their_columns_in_its_key():
    found = declared(lambda tickets: tickets, by="status", key=("ticket_id", "status"))
    assert (found.by, found.key, found.root_key) == (("status",), ("status", "ticket_id"), ("status",))
    assert (found.grouped, declared(lambda tickets: tickets, by="status").grouped) == (False, True)


def test_views_that_a_group_does_not_list_are_kept_before_those_that_read_them():
    named = declared(lambda tickets: tickets, key="ticket_id")
    totals = declared(lambda some_view: some_view, name="totals", by="status", tables={"some_view": named})
    group = ProjectionGroup("tickets", [totals])
    assert [view.name for view in group.all_views] == ["some_view", "totals"]
    assert list(group.tables) == ["tickets"]


def guests_shown(guests):
    return guests


def of_nowhere(tickets, nowhere):
    return tickets


def two_meanings():
    one = declared(lambda tickets: tickets, key="ticket_id", name="one")
    other = {"tickets": Table.from_events(Ticket, key="ticket_id")}
    ProjectionGroup("tickets", [one, declared(lambda tickets: tickets, key="ticket_id", name="two", tables=other)])


NO_VIEWS = {
    "neither a key nor groups": (
        lambda: declared(lambda tickets: tickets), "neither a key nor columns to group by", ""),
    "groups by no column": (
        lambda: declared(lambda tickets: tickets, by="nothing"),
        "'nothing' at a time, and 'tickets' has no such column", ""),
    "groups by a column of one table alone": (
        lambda: declared(lambda tickets, customers: tickets, by="status"), "'customers' has no such column", ""),
    "a key column twice": (
        lambda: declared(lambda tickets: tickets, key=("ticket_id", "ticket_id")), "a key column twice", ""),
    "a parameter without a table": (
        lambda: view(key="ticket_id")(of_nowhere), "takes 'nowhere'", ""),
    "two tables of one name": (two_meanings, "mean different tables by 'tickets'", ""),
    "a function that is no view yet": (
        lambda: view(guests_shown), "view 'guests_shown' has neither a key nor a partition", 'write @view(key="…")'),
    "a function in a group": (
        lambda: ProjectionGroup("shop", [guests_shown]), "group 'shop' has 'guests_shown', a function", ""),
}  # fmt: skip


@each_row("declare, words, remedy", NO_VIEWS.values(), ids=NO_VIEWS)
def test_what_a_view_cannot_be_is_refused(declare, words, remedy):
    refused(declare, words, remedy)
