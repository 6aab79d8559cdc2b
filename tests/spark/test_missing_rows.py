"""Why a view has no row of a key: the stage at which it was lost, the condition and the values, for thirty causes."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from projections import ProjectionGroup, Table, on, sql_view
from projections.errors import InvalidDefinition, ProjectionError
from projections.lifecycle.missing import why_missing
from projections.testing.trial import ViewTrial
from tests.captured import captured
from tests.conformance.guests import Guest

orders = captured("orders", "customer_id", "amount", status=sa.Text)
customers = captured("customers", "region_id", "name")
regions = captured("regions", "name")
lines = captured("lines", "order_id", "quantity", kind=sa.Text)
TABLES = {"orders": orders, "customers": customers, "regions": regions, "lines": lines}
VIEWS = {}


def written(name, text, key=None, **views):
    tables = {table: TABLES[table] for table in TABLES if f" {table}" in text}
    VIEWS[name] = sql_view(name, text, tables={**tables, **views}, key=key)
    return VIEWS[name]


written("open", "SELECT id, amount FROM orders WHERE status = 'open' AND amount > 10")
written("named", "SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer_id = c.id")
written(
    "placed",
    "SELECT o.id, r.name FROM orders o JOIN customers c ON o.customer_id = c.id JOIN regions r ON r.id = c.region_id"
    " WHERE o.status <> 'void' AND c.name LIKE 'A%'",
)
written("known", "SELECT id FROM orders WHERE customer_id IN (SELECT id FROM customers WHERE name <> 'Zed')")
written("single", "SELECT id FROM orders o WHERE NOT EXISTS (SELECT 1 FROM lines l WHERE l.order_id = o.id)")
totals = written("totals", "SELECT order_id, sum(quantity) AS pieces FROM lines WHERE kind = 'goods' GROUP BY order_id")
written("large", "SELECT order_id, sum(quantity) AS pieces FROM lines GROUP BY order_id HAVING sum(quantity) > 10")
written(
    "first",
    "SELECT id, status FROM (SELECT id, status, row_number() OVER (PARTITION BY status ORDER BY amount, id) AS place"
    " FROM orders) WHERE place = 1",
)
gifts = "SELECT id FROM orders WHERE amount > 1000 UNION ALL SELECT id FROM orders WHERE status = 'gift'"
written("both", gifts, key="id")
written(
    "heavy", "SELECT o.id, t.pieces FROM orders o JOIN totals t ON t.order_id = o.id WHERE t.pieces >= 3", totals=totals
)
written(
    "pairs", "SELECT a.id, b.id AS other FROM orders a JOIN orders b ON a.customer_id = b.customer_id AND a.id < b.id"
)
written("left", "SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.customer_id = c.id WHERE c.name <> ''")
GROUP = ProjectionGroup("missing", list(VIEWS.values()))

ROWS = [
    (orders, {"id": 1, "customer_id": 7, "amount": 50, "status": "closed"}),
    (orders, {"id": 2, "customer_id": 7, "amount": 5, "status": "open"}),
    (orders, {"id": 3, "customer_id": 8, "amount": 50, "status": "open"}),
    (orders, {"id": 4, "customer_id": None, "amount": 50, "status": "void"}),
    (orders, {"id": 5, "customer_id": 9, "amount": 60, "status": "open"}),
    (orders, {"id": 6, "customer_id": 10, "amount": 60, "status": "open"}),
    (orders, {"id": 12, "customer_id": 7, "amount": 90, "status": "open"}),
    (customers, {"id": 7, "region_id": 1, "name": "Ann"}),
    (customers, {"id": 8, "region_id": 1, "name": "Abe"}),
    (customers, {"id": 9, "region_id": 2, "name": "Amy"}),
    (customers, {"id": 10, "region_id": 1, "name": "Zed"}),
    (regions, {"id": 1, "name": "North"}),
    (lines, {"id": 1, "order_id": 1, "quantity": 2, "kind": "goods"}),
    (lines, {"id": 2, "order_id": 2, "quantity": 9, "kind": "service"}),
    (lines, {"id": 3, "order_id": 3, "quantity": 1, "kind": "goods"}),
    (lines, {"id": 4, "order_id": 3, "quantity": 8, "kind": "service"}),
]
DELETED = [(orders, 12), (customers, 8)]

# view, key, and of what is found last: the place, the step, words of its condition, values before it
CAUSES = [
    ("open", {"id": 1}, "view open", "filter", "(orders.status = 'open')", {"status": "closed"}),
    ("open", {"id": 2}, "view open", "filter", "(orders.amount > 10)", {"amount": 5}),
    ("open", {"id": 4}, "view open", "filter", "(orders.status = 'open')", {"status": "void"}),
    ("open", {"id": 99}, "table of orders", "no row", "(id = '99')", {}),
    ("open", {"id": 12}, "table of orders", "deleted", "_deleted", {"_offset": 8}),
    ("named", {"id": 3}, "table of customers", "deleted", "_deleted", {"id": 8, "_offset": 5}),
    ("named", {"id": 4}, "view named", "join", "(o.customer_id = c.id)", {"customer_id": None}),
    ("named", {"id": 99}, "table of orders", "no row", "99", {}),
    ("named", {"id": 12}, "table of orders", "deleted", "_deleted", {"id": 12}),
    ("placed", {"id": 4}, "view placed", "filter", "(NOT (o.status = 'void'))", {"status": "void"}),
    ("placed", {"id": 6}, "view placed", "filter", "startswith(c.name, 'A')", {"name": "Zed"}),
    ("placed", {"id": 5}, "table of regions", "no row", "(id = '2')", {}),
    ("placed", {"id": 3}, "table of customers", "deleted", "_deleted", {"id": 8}),
    ("known", {"id": 6}, "view known", "filter", "(NOT (customers.name = 'Zed'))", {"name": "Zed"}),
    ("known", {"id": 3}, "table of customers", "deleted", "_deleted", {"id": 8}),
    ("known", {"id": 99}, "table of orders", "no row", "99", {}),
    ("single", {"id": 1}, "view single", "anti join", "order_id", {"id": 1}),
    ("single", {"id": 12}, "table of orders", "deleted", "_deleted", {"id": 12}),
    ("totals", {"order_id": 2}, "view totals", "filter", "(lines.kind = 'goods')", {"kind": "service"}),
    ("totals", {"order_id": 5}, "table of lines", "no row", "(order_id = '5')", {}),
    ("large", {"order_id": 3}, "view large", "filter", "> 10)", {"pieces": 9}),
    ("large", {"order_id": 5}, "table of lines", "no row", "(order_id = '5')", {}),
    ("first", {"id": 3}, "view first", "filter", "place = 1", {"place": 2}),
    ("first", {"id": 99}, "table of orders", "no row", "99", {}),
    ("both", {"id": 1}, "view both", "filter", "(orders.status = 'gift')", {"status": "closed"}),
    ("heavy", {"id": 1}, "view heavy", "filter", "(t.pieces >= 3)", {"pieces": 2}),
    ("heavy", {"id": 2}, "view totals", "filter", "(lines.kind = 'goods')", {"kind": "service"}),
    ("heavy", {"id": 5}, "table of lines", "no row", "(order_id = '5')", {}),
    ("pairs", {"id": 1, "other": 5}, "view pairs", "join", "customer_id", {"customer_id": 9}),
    ("left", {"id": 3}, "table of customers", "deleted", "_deleted", {"id": 8}),
]


@pytest.fixture(scope="module")
def environment(small, tmp_path_factory):
    with ViewTrial(small, GROUP, tmp_path_factory.mktemp("missing")) as trial:
        for table, row in ROWS:
            trial.put(table, row)
        for table, id in DELETED:
            trial.delete(table, {"id": id})
        trial.check()
        yield trial._environment


@pytest.mark.parametrize(
    ("view", "key", "place", "step", "words", "values"),
    [pytest.param(*cause, marks=() if n % 3 == 0 else pytest.mark.faults) for n, cause in enumerate(CAUSES)],
)
def test_the_stage_that_lost_a_row_is_named(environment, view, key, place, step, words, values):
    found = why_missing(environment, GROUP, view, key)
    last = found[-1]
    assert (last.place, last.step) == (place, step), found
    assert words in last.condition, found
    assert not values or any(values.items() <= row.items() for row in last.values), found


def test_values_that_may_be_of_a_person_are_masked_by_whatever_name(small, tmp_path):
    registered = on(Guest.Registered)
    guests = Table.from_events(
        Guest, key="guest_id", columns={"name": registered.take("name"), "plan": registered.take("plan")}
    )
    named = sql_view("named", "SELECT guest_id, name AS plan, plan AS x FROM guests", tables={"guests": guests})
    texts = {
        "renamed": "SELECT guest_id FROM named WHERE plan = 'Ann'",
        "counted": "SELECT plan AS y, max(guest_id) AS guest_id FROM guests GROUP BY plan HAVING max(name) = 'Ann'",
        "shown": "SELECT guest_id FROM named WHERE x = 'gold'",
    }
    keys = {"counted": {"y": "basic"}}
    read = {"named": named, "guests": guests}
    views = [
        sql_view(name, text, tables={one: table for one, table in read.items() if f"FROM {one}" in text})
        for name, text in texts.items()
    ]
    group = ProjectionGroup("cards", views)
    with ViewTrial(small, group, tmp_path) as trial:
        trial.record("guest-1", Guest.Registered(name="Zed Secret", plan="basic"))
        trial.check()
        asked = {name: keys.get(name, {"guest_id": "1"}) for name in texts}
        lost = {name: why_missing(trial._environment, group, name, key) for name, key in asked.items()}
    assert "Secret" not in str(lost)
    assert "Ann" not in str(lost)
    assert lost["shown"][-1].values == ({"x": "basic"},)
    assert lost["shown"][-1].condition.endswith("= 'gold')")


def test_a_key_of_another_type_is_refused(environment):
    with pytest.raises(InvalidDefinition, match="is no long of column 'id'"):
        why_missing(environment, GROUP, "open", {"id": "abc"})
    with pytest.raises(ProjectionError):
        why_missing(environment, GROUP, "open", {"id": str(2**70)})
