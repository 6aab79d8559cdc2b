"""The role of a connector on a real PostgreSQL: what it may, what it may not, and names that try to do more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.exc import OperationalError, ProgrammingError

from cdc import prepare_source
from cdc.errors import SourceNotReady
from cdc.source.grants import check_source
from tests.rows import each_row


@pytest.fixture(scope="module")
def shop(captured: Callable[[], Any]) -> Any:
    return captured(
        "CREATE TABLE items (id int PRIMARY KEY, name text)",
        'CREATE TABLE "Mixed Case" (id int PRIMARY KEY)',
        'CREATE TABLE "Select" (id int PRIMARY KEY)',
        "CREATE TABLE salaries (id int PRIMARY KEY, amount int)",
    )


@pytest.fixture(scope="module")
def connector(shop: Any) -> Any:
    return shop.prepared(shop.source(tables=("public.items", "public.Select")))


@pytest.fixture
def role(shop: Any, connector: Any) -> Iterator[Engine]:
    """The connector's own login."""
    engine = create_engine(shop.engine.url.set(username=connector.user, password=shop.password))
    yield engine
    engine.dispose()


def execute(engine: Engine, statement: str) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(statement)


def test_the_role_reads_its_tables_and_nothing_else(role):
    execute(role, "SELECT * FROM items")
    execute(role, 'SELECT * FROM "Select"')

    with pytest.raises(ProgrammingError, match="permission denied for table salaries"):
        execute(role, "SELECT * FROM salaries")


@each_row(
    "statement",
    [
        "INSERT INTO items VALUES (1, 'x')",
        "UPDATE items SET name = 'x'",
        "DELETE FROM items",
        "TRUNCATE items",
        "DROP TABLE items",
        "CREATE TABLE mine (id int)",
        "CREATE PUBLICATION mine FOR TABLE items",
        "CREATE ROLE mine",
        "GRANT SELECT ON salaries TO current_user",
    ],
)
def test_the_role_changes_nothing(role, statement):
    with pytest.raises((ProgrammingError, OperationalError), match=r"permission denied|must be owner"):
        execute(role, statement)


def test_preparing_again_changes_nothing(shop, connector):
    catalogue = (
        "SELECT rolname, rolsuper, rolreplication, rolcreaterole FROM pg_roles ORDER BY 1",
        "SELECT * FROM pg_publication_tables ORDER BY 1, 2, 3",
        "SELECT grantee, table_name, privilege_type FROM information_schema.role_table_grants ORDER BY 1, 2, 3",
    )
    before = [shop.rows(query) for query in catalogue]

    prepare_source(shop.engine, connector, password=shop.password)

    assert [shop.rows(query) for query in catalogue] == before
    check_source(shop.engine, connector)


def test_the_password_never_travels_in_a_statement(shop, connector):
    sent: list[str] = []

    def note(*execution: Any) -> None:
        sent.extend((execution[2], str(execution[3])))

    event.listen(shop.engine, "before_cursor_execute", note)
    try:
        prepare_source(shop.engine, connector, password=shop.password)
    finally:
        event.remove(shop.engine, "before_cursor_execute", note)

    assert any("SCRAM-SHA-256$" in statement for statement in sent)
    assert not any("it's a" in statement for statement in sent)


def test_everything_that_is_missing_is_named_at_once(shop):
    absent = shop.source(name=f"{shop.name}-absent", user="nobody_here", tables=("public.items", "public.gone"))

    with pytest.raises(SourceNotReady) as failure:
        check_source(shop.engine, absent)

    assert "table public.gone does not exist" in failure.value.message
    assert "role nobody_here does not exist" in failure.value.message
    assert "publication" in failure.value.message


def test_a_login_without_the_right_is_told_who_has_it(shop, connector, role):
    shop.run(f"DROP PUBLICATION {connector.publication}")

    with pytest.raises(SourceNotReady, match="permission denied for database") as failure:
        prepare_source(role, connector)

    assert failure.value.remedy.startswith("run it as the owner of the tables and of the publication")
    assert "prepare_source" not in failure.value.remedy
    shop.prepared(connector)


def test_a_right_that_the_login_may_not_grant_is_missed(shop, connector, role):
    shop.run(f"REVOKE SELECT ON salaries FROM {connector.user}", f"GRANT INSERT ON salaries TO {connector.user}")
    wider = shop.source(tables=(*connector.tables, "public.salaries"))

    with pytest.raises(SourceNotReady, match=r"may not SELECT from public\.salaries") as failure:
        prepare_source(role, wider)

    assert failure.value.remedy == f'GRANT SELECT ON TABLE "public"."salaries" TO "{connector.user}"'
    shop.run(f"REVOKE ALL ON salaries FROM {connector.user}")


def test_a_role_that_exists_keeps_its_password(shop, connector, role):
    shop.run(f"ALTER ROLE {connector.user} NOLOGIN NOREPLICATION")

    prepare_source(shop.engine, connector)

    check_source(shop.engine, connector)
    execute(role, "SELECT 1")


def test_a_new_role_without_a_password_is_refused(shop):
    new = shop.source(name=f"{shop.name}-new", user=f"{shop.name}_new", tables=("public.items",))

    with pytest.raises(SourceNotReady, match="does not exist, and no password was given") as failure:
        prepare_source(shop.engine, new)

    assert "password=" in failure.value.remedy
    assert shop.rows(f"SELECT 1 FROM pg_publication WHERE pubname = '{new.publication}'") == []


def published(shop: Any, publication: str) -> set[str]:
    return {row[0] for row in shop.rows(f"SELECT tablename FROM pg_publication_tables WHERE pubname = '{publication}'")}


def sharing(shop: Any, publication: str, *tables: str) -> Any:
    return shop.source(
        name=f"{shop.name}-{tables[0]}", publication=publication, tables=tuple(f"public.{table}" for table in tables)
    )


def test_two_connectors_with_one_publication_leave_each_other_their_tables(shop):
    first, second = (sharing(shop, "shared", *tables) for tables in (["items"], ["salaries", "Select"]))

    for one in (first, second, first):
        shop.prepared(one)

    assert published(shop, "shared") == {"items", "salaries", "Select"}
    check_source(shop.engine, first)
    check_source(shop.engine, second)


def test_a_publication_of_a_schema_stays_one(shop):
    shop.run("CREATE SCHEMA aside", "CREATE TABLE aside.things (id int PRIMARY KEY)")
    shop.run("CREATE PUBLICATION of_schema FOR TABLES IN SCHEMA aside WITH (publish = 'insert, truncate')")

    declared = shop.source(name=f"{shop.name}-schema", publication="of_schema", tables=("aside.things", "public.items"))
    check_source(shop.engine, shop.prepared(shop.prepared(declared)))

    assert published(shop, "of_schema") == {"things", "items"}
    assert shop.rows("SELECT count(*) FROM pg_publication_namespace") == [(1,)]
    assert shop.rows("SELECT pubupdate, pubdelete, pubtruncate FROM pg_publication WHERE pubname = 'of_schema'") == [
        (True, True, True)
    ]


def test_a_publication_of_all_tables_stays_one(shop):
    shop.run(
        "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10)",
        "CREATE PUBLICATION of_all FOR ALL TABLES",
    )

    declared = sharing(shop, "of_all", "items", "parts")
    check_source(shop.engine, shop.prepared(shop.prepared(declared)))
    with pytest.raises(SourceNotReady, match=r"changes of public\.parts_1 through as those of the table it is part of"):
        shop.prepared(sharing(shop, "of_all", "parts_1"))

    assert shop.rows("SELECT puballtables, pubviaroot FROM pg_publication WHERE pubname = 'of_all'") == [(True, True)]
    shop.run("DROP PUBLICATION of_all")
