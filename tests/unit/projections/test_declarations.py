"""Tables, views and groups are checked when they are declared; each refusal says what to write instead."""

from __future__ import annotations

from typing import Annotated

import pytest
import sqlalchemy as sa

from eventstore import Aggregate, Personal, event
from projections import ProjectionGroup, Table, field, of_type, on, view
from projections.errors import InvalidDefinition, InvalidPredicate
from tests.errors import raises
from tests.integration.tickets import CUSTOMERS, DECLARED, REGIONS, Ticket

tickets = Table.from_events(Ticket, key="ticket_id", columns=DECLARED)
customers = Table.from_changelog(CUSTOMERS, topic="shop.public.customers")
regions = Table.from_changelog(REGIONS, topic="shop.public.regions")


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


def test_a_view_finds_its_tables_by_parameter_name():
    @view(key="ticket_id")
    def ticket_details(tickets, customers, regions):
        return tickets

    assert list(ticket_details.tables.values()) == [tickets, customers, regions]


def test_an_unknown_event_field_is_refused_with_those_there_are():
    with raises(InvalidDefinition, code="unknown-column", match="no field 'custmer'") as caught:
        on(Ticket.Opened).take("custmer")
    assert "customer_id, hours" in caught.value.remedy


def test_a_column_of_two_types_is_refused():
    with pytest.raises(InvalidDefinition, match="different types"):
        Table.from_events(
            Ticket, key="id", columns={"x": [on(Ticket.Opened).take("hours"), on(Ticket.Closed).set("no")]}
        )


REFUSED = {
    "an unknown column": (lambda: field("hour") > 3, "unknown-column", "no column 'hour'"),
    "another kind of value": (lambda: field("hours") > "3", "invalid-predicate", "number cannot be compared with '3'"),
    "a part of what has none": (lambda: field("hours.a") == 3, "invalid-predicate", "is no record"),
    "a type of event": (lambda: of_type(Ticket.Opened), "invalid-predicate", "no event type"),
    "Spark's SQL": (lambda: "hours > 3", "invalid-predicate", "is not a predicate"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_condition_that_rows_cannot_meet_is_refused(what):
    condition, code, message = REFUSED[what]
    with raises(InvalidDefinition, code=code, match=message):
        tickets.where(condition())


def test_a_condition_is_part_of_what_a_table_means():
    some = tickets.where(field("hours") > 3)
    assert some.signature() != tickets.signature() != tickets.where(field("hours") > 4).signature()
    assert some.where(field("status") == "open").signature() not in (some.signature(), tickets.signature())


def test_versions_take_no_condition():
    with pytest.raises(InvalidDefinition, match="versions takes no condition"):
        Table.versions_of(CUSTOMERS, topic="shop.public.customers").where(field("id") > 1)


def test_a_personal_column_is_no_condition():
    class Guest(Aggregate):
        @event
        class Registered:
            email: Annotated[str, Personal(erased="")]

    guests = Table.from_events(Guest, key="guest_id", columns={"email": on(Guest.Registered).take("email")})
    with pytest.raises(InvalidPredicate, match="'email' is personal"):
        guests.where(field("email") == "a@b.c")


def test_a_setter_of_a_foreign_event_is_refused():
    class Other(Aggregate):
        @event
        class Happened:
            pass

    with pytest.raises(InvalidDefinition, match="no event of Ticket"):
        Table.from_events(Ticket, key="id", columns={"x": on(Other.Happened).set("yes")})


class Patient(Aggregate):
    @event
    class Admitted:
        allergies: Annotated[list[str], Personal(erased=[])]


def test_a_nested_column_of_a_personal_field_is_refused():
    with pytest.raises(InvalidDefinition, match="only flat values are stored sealed"):
        on(Patient.Admitted).take("allergies")


class Moving(Aggregate):
    status: str = "none"

    @event
    class Moved:
        to: str


class Refund(Aggregate):
    @event
    class Paid:
        amount: int


REFUNDED = {"paid": on(Refund.Paid).take("amount")}


def test_a_table_of_several_aggregates_is_a_view_of_theirs():
    together = Table.from_events(Ticket, Refund, name="together", key="ticket_id", columns={**DECLARED, **REFUNDED})
    assert list(together.tables) == ["together_ticket", "together_refund"]
    assert [list(table.columns) for table in together.tables.values()] == [
        ["ticket_id", *DECLARED], ["ticket_id", "paid"]
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ([[Ticket, Refund]], {}, "folded from aggregates, and is given"),
        ([], {}, "folded from aggregates, and is given none"),
        ([Ticket, Refund], {"name": None}, "stored as a view, and has no name"),
        ([Ticket, Refund], {"name": "a b"}, "not a usable name"),
        ([Ticket, Refund], {"topic": "tickets"}, "come from one topic"),
        ([Ticket, Ticket], {}, "come twice"),
        ([Ticket, type("Ticket", (Moving,), {}), Refund], {}, "come twice"),
        ([Ticket, Refund], {"columns": {"x": on(Moving.Moved).set("yes")}}, "events of none of the aggregates"),
        ([Ticket, Refund], {"columns": {"hours": [on(Ticket.Opened).take("hours"), on(Refund.Paid).take("amount")]}},
         "set by events of Ticket and Refund"),
        ([Ticket, Moving], {}, "column 'status' of Moving is one of Ticket already"),
        ([Ticket, Moving], {"key": "status"}, "column 'status' of Ticket is its key too"),
        ([Ticket], {"key": "hours", "columns": DECLARED}, "column 'hours' of Ticket is its key too"),
    ],
)  # fmt: skip
def test_aggregates_that_are_no_one_table_are_refused(given, options, message):
    with pytest.raises(InvalidDefinition, match=message):
        Table.from_events(*given, **({"name": "together", "key": "ticket_id"} | options))


def test_a_table_without_primary_key_is_refused():
    keyless = sa.Table("keyless", sa.MetaData(), sa.Column("a", sa.Integer))
    with pytest.raises(InvalidDefinition, match="no primary key"):
        Table.from_changelog(keyless, topic="t")


@pytest.mark.parametrize("name", ['a"; DROP TABLE x; --', "a b", "A-b", "ü", "a" * 41, "a\x00b"])
def test_a_column_name_that_could_be_anything_else_in_sql_is_refused(name):
    hostile = sa.Table("t", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column(name, sa.Integer))
    with pytest.raises(InvalidDefinition, match="not a usable name"):
        Table.from_changelog(hostile, topic="t")


def test_a_parameter_without_a_table_is_refused():
    with pytest.raises(InvalidDefinition, match="takes 'nowhere'"):

        @view(key="ticket_id")
        def ticket_details(tickets, nowhere):
            return tickets


def test_two_views_of_a_group_must_mean_one_table_by_one_name():
    @view(key="ticket_id")
    def one(tickets):
        return tickets

    @view(key="ticket_id", tables={"tickets": Table.from_events(Ticket, key="ticket_id")})
    def two(tickets):
        return tickets

    with pytest.raises(InvalidDefinition, match="mean different tables by 'tickets'"):
        ProjectionGroup("tickets", [one, two])


def test_a_fingerprint_changes_with_the_function_and_not_with_the_process():
    def group(function):
        function.__name__ = "one"
        return ProjectionGroup("tickets", [view(key="ticket_id", tables={"tickets": tickets})(function)])

    first = group(lambda tickets: tickets)
    assert first.fingerprint() == group(first.views[0].function).fingerprint()
    assert first.fingerprint() != group(lambda tickets: tickets.select("ticket_id")).fingerprint()


def test_a_function_without_a_source_is_known_by_its_code():
    def group(text):
        made = {}
        exec(compile(f"def one(tickets): return {text}", "<shell>", "exec"), made)  # as a shell runs it
        return ProjectionGroup("tickets", [view(key="ticket_id", tables={"tickets": tickets})(made["one"])])

    text = "tickets.where('ticket_id' in {'a', 'b', 'c'})"
    assert group(text).fingerprint() == group(text).fingerprint() != group(text.replace("'c'", "'d'")).fingerprint()


def declared(function, **options):
    """A view over the tables of this module that the function's parameters name."""
    known = {"tickets": tickets, "customers": customers, "regions": regions, "others": customers, "places": places}
    taken = {name: known[name] for name in function.__code__.co_varnames if name in known}
    function.__name__ = "some_view"
    return view(tables=taken, **options)(function)


places = Table.from_changelog(
    sa.Table("places", sa.MetaData(), sa.Column("country", sa.Text, primary_key=True),
             sa.Column("city", sa.Text, primary_key=True)), topic="shop.public.places",
)  # fmt: skip


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (lambda tickets: tickets, {}, "neither a key nor columns to group by"),
        (lambda tickets: tickets, {"by": "nothing"}, "'nothing' at a time, and 'tickets' has no such column"),
        (lambda tickets, customers: tickets, {"by": "status"}, "'customers' has no such column"),
        (lambda tickets: tickets, {"key": ("ticket_id", "ticket_id")}, "a key column twice"),
    ],
)  # fmt: skip
def test_what_a_view_cannot_be_is_refused(function, options, message):
    with pytest.raises(InvalidDefinition, match=message):
        declared(function, **options)


def test_a_view_over_partitions_has_their_columns_in_its_key():
    found = declared(lambda tickets: tickets, by="status", key=("ticket_id", "status"))
    assert (found.by, found.key, found.root_key) == (("status",), ("status", "ticket_id"), ("status",))
    assert (found.grouped, declared(lambda tickets: tickets, by="status").grouped) == (False, True)


def test_views_that_a_group_does_not_list_are_kept_before_those_that_read_them():
    named = declared(lambda tickets: tickets, key="ticket_id")
    group = ProjectionGroup("tickets", [view(by="status", tables={"some_view": named})(totals)])
    assert [view.name for view in group.all_views] == ["some_view", "totals"]
    assert list(group.tables) == ["tickets"]


def totals(some_view):
    return some_view


def test_a_view_without_a_key_and_a_group_of_functions_are_refused_with_the_line_to_write():
    def shown(tickets):
        return tickets

    with pytest.raises(InvalidDefinition, match="view 'shown' has neither a key nor a partition") as bare:
        view(shown)
    assert bare.value.remedy.startswith('write @view(key="…")')
    with pytest.raises(InvalidDefinition, match="group 'shop' has 'shown', a function and no view"):
        ProjectionGroup("shop", [shown])
