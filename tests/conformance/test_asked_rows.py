"""A SELECT that a person writes over views: what it reads on both databases, and what neither lets it do."""

from __future__ import annotations

import pytest

from projections.errors import ProjectionError
from projections.stores import asked_rows
from projections.stores.asked_rows import asked_condition, query_rows
from tests.conformance.ticket_batches import one_ticket
from tests.errors import raises
from tests.rows import each_row

pytestmark = pytest.mark.both_databases


@pytest.fixture
def ask(store):
    """Ask the serving generation, in which customer 1 has one ticket."""
    run = one_ticket(store)
    return lambda text, **options: query_rows(
        store, "tickets", run.generation, text, **{"views": ["ticket_names"], **options}
    )


@each_row(("text", "rows"), [
    ("SELECT ticket_id FROM ticket_names WHERE ticket_id LIKE '%1'", [("t1",)]),
    ('select count(*), max(t.ticket_id) from "ticket_names" t', [(1, "t1")]),
    ("select upper(ticket_names.ticket_id) from ticket_names order by 1;", [("T1",)]),
    ("select a.ticket_id from ticket_names a join (select * from ticket_names) b on a.ticket_id < b.ticket_id", []),
    ("select cast(7 as varchar) as n union all select ticket_id from ticket_names order by n", [("7",), ("t1",)]),
])  # fmt: skip
def test_a_query_reads_the_views(ask, text, rows):
    assert ask(text).rows == rows


def test_rows_are_bounded_and_say_that_there_are_more(ask):
    found = ask(" union all ".join(["select ticket_id from ticket_names"] * 5), limit=3)
    assert (len(found.rows), found.total, found.columns) == (3, 4, ("ticket_id",))


@each_row("text", [
    "select * from state_tickets", "select * from sqlite_master", "select * from (select * from events) x",
    "select (select max(data) from events) from ticket_names", "select 1 from ticket_names union select 1 from events",
    "select 1 from ticket_names where exists (select 1 from events)", "select * from json_each('[1]')",
    "with ticket_names as (select * from events) select * from ticket_names", "select load_extension('x')",
    "select * from pragma_table_info('events')", "pragma query_only = off", "attach 'x.db' as y", "((((",
    "select" + "(" * 3000 + "1", "select * from pg_catalog.pg_user", "select * from pg_user",
    "select pg_sleep(9)", "select pg_read_file('/etc/hostname')", "select query_to_xml('select 1', true, true, '')",
    "select set_config('transaction_read_only', 'off', false)", "select lo_import('/etc/hostname')",
    "select * from generate_series(1, 9)", "select repeat('x', 1000000000)", "select 1 into made from ticket_names",
    "select * from ticket_names for update", "with a as (delete from ticket_names returning *) select * from a",
    "update ticket_names set ticket_id = 'x'", "drop table ticket_names", "copy ticket_names to program 'true'",
    "select * from ticket_names; commit; drop table x", "explain analyze delete from ticket_names", "vacuum",
    "select ticket_id from ticket_names where missing = 1", "select $1 from ticket_names", "",
    # What is written back without its quotes would be another text.
    'select cast(ticket_id as "q), (select max(data) from events), (1") from ticket_names',
    'select extract("year from now()), (select 1), extract(year" from now()) from ticket_names',
    'select extract("year from now())) as asked; commit; drop table x; --" from now()) from ticket_names',
    'select 1 operator("pg_catalog".+) 1 from ticket_names', 'select decimal("ticket_id") from ticket_names',
    'select ticket_id::"s"."x" from ticket_names', "select * from ticket_names as t, lateral (select 1) x",
    'select varchar("9") from ticket_names', "select cast(ticket_id as char(10485760)) from ticket_names",
    "select * from (ticket_names a join ticket_names b on true)", "select * from ticket_names tablesample system (1)",
    "select " + "||".join(["ticket_id"] * 12) + " from ticket_names",
    'select "ticket id" from ticket_names', "select '\\' from ticket_names", "select /* */ * from ticket_names, events",
])  # fmt: skip
def test_everything_else_is_refused_with_a_remedy(ask, text):
    with raises(ProjectionError, code="query-refused") as refused:
        ask(text)
    assert refused.value.remedy
    assert ask("select count(*) from ticket_names").rows == [(1,)]


def test_the_database_itself_lets_a_query_change_nothing(store, ask, monkeypatch):
    """Were the check of the text wrong, the read-only look would still refuse."""
    with store.looking() as connection, pytest.raises(Exception, match=r"read-?only"), asked_rows._reading(connection):
        connection.exec_driver_sql("CREATE TABLE made (id int)")


def test_a_query_ends_after_its_time(ask, monkeypatch):
    monkeypatch.setattr(asked_rows, "_SECONDS", 0.3)
    numbers = "(select 1 union all select 2 union all select 3 union all select 4)"
    crossed = ", ".join(f"{numbers} n{number}" for number in range(20))
    with raises(ProjectionError, code="query-refused", match=r"interrupted|statement timeout"):
        ask(f"select count(*) from {crossed}")


def test_a_text_reads_masks_in_place_of_personal_columns(store, ask):
    run = store.serving_state("tickets").run
    store.record(store.claim(run), built={"personal": {"views": {"ticket_names": ["hours"]}}})
    assert ask("select ticket_id, hours from ticket_names where hours <> 'x'").rows == [("t1", "***")]
    assert ask("select max(t.hours) from ticket_names t join ticket_names on true").rows == [("***",)]
    assert ask("select * from ticket_names").rows[0][:2] == ("t1", "***")


@each_row("text", [
    "1 = 1 UNION SELECT 1", "id IN (SELECT 1)", "reflect('java.lang.System', 'exit')", "1 = 1 ORDER BY id",
    "id = 1; DROP TABLE x", "1 = 1) t WHERE (1 = 1", "NAME = 'Ann'", "'Ann' IN (*)", "'Ann' IN (asked.*)",
])  # fmt: skip
def test_a_condition_compares_columns_that_are_shown_and_nothing_else(text):
    assert asked_condition("id > 3 AND lower(city) LIKE 'x%'", hidden=["name"]) == "id > 3 AND LOWER(city) LIKE 'x%'"
    with pytest.raises(ProjectionError):
        asked_condition(text, hidden=["name"])
