"""A SELECT that joins and groups, live on Spark: the view of its rows goes with its generation."""

from __future__ import annotations

import sqlalchemy as sa

from projections import ProjectionGroup, open_runner, rebuild, sql_view, verify
from projections.stores.generations import drop
from projections.testing.memory_log import ChangeWriter
from tests.captured import captured

sales = captured("sales", "customer_id", at=sa.DateTime, price=sa.Numeric(10, 2))
customers = captured("customers", "name")
TABLES = {"sales": sales, "customers": customers}
DAYS = """
    select to_date(s.AT) as day, upper(name) as buyer, count(*) as n, sum(Price) as total
    from Sales S left join CUSTOMERS c on (CUSTOMER_ID = C.ID)
    group by To_Date(at), 2
    having total > 1
"""


def shop(version=1, text=DAYS):
    return ProjectionGroup("shop", [sql_view("days", text, tables=TABLES)], version=version)


def sale(number, customer, at, price):
    return {"id": number, "customer_id": customer, "at": at, "price": price}


def test_the_rows_are_part_of_each_generation_and_go_with_it(local):
    changes = ChangeWriter(local.log)
    changes.put(customers, {"id": 7, "name": "Ann"})
    changes.put(sales, sale(1, 7, "2024-01-01T10:00:00", "2.50"))
    rebuild(local, shop())
    changes.put(sales, sale(2, 7, "2024-01-01T10:00:00", "2.50"))
    with open_runner(local, shop()) as runner:
        runner.catch_up()
    assert verify(local, shop())["days"].equal
    other = shop(2, DAYS.replace("total > 1", "total > 0"))
    rebuild(local, other)
    assert len(rows_of(local.store)) == 2
    assert verify(local, other)["days"].equal
    assert drop(local.store, "shop") == [1]
    assert len(rows_of(local.store)) == 1


def rows_of(store):
    """The tables of the rows in all generations."""
    with store.transaction() as connection:
        return [name for name in sa.inspect(connection).get_table_names() if name.endswith("view_days_rows")]
