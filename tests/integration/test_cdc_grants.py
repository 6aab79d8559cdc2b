"""The role of a connector on a real PostgreSQL: what it may, what it may not, and names that try to do more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.exc import OperationalError, ProgrammingError

from cdc import check_source, grant_statements, prepare_source
from cdc.errors import SourceNotReady
from eventstore.errors import InvalidIdentifier


@pytest.fixture(scope="module")
def shop(captured: Callable[[], Any]) -> Any:
    shop = captured()
    shop.run(
        "CREATE TABLE items (id int PRIMARY KEY, name text)",
        'CREATE TABLE "Mixed Case" (id int PRIMARY KEY)',
        'CREATE TABLE "Select" (id int PRIMARY KEY)',
        "CREATE TABLE salaries (id int PRIMARY KEY, amount int)",
    )
    return shop


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


def test_the_role_reads_its_tables_and_nothing_else(role: Engine) -> None:
    execute(role, "SELECT * FROM items")
    execute(role, 'SELECT * FROM "Select"')

    with pytest.raises(ProgrammingError, match="permission denied for table salaries"):
        execute(role, "SELECT * FROM salaries")


@pytest.mark.parametrize(
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
def test_the_role_changes_nothing(role: Engine, statement: str) -> None:
    with pytest.raises((ProgrammingError, OperationalError), match=r"permission denied|must be owner"):
        execute(role, statement)


def test_preparing_again_changes_nothing(shop: Any, connector: Any) -> None:
    catalogue = (
        "SELECT rolname, rolsuper, rolreplication, rolcreaterole FROM pg_roles ORDER BY 1",
        "SELECT * FROM pg_publication_tables ORDER BY 1, 2, 3",
        "SELECT grantee, table_name, privilege_type FROM information_schema.role_table_grants ORDER BY 1, 2, 3",
    )
    before = [shop.rows(query) for query in catalogue]

    prepare_source(shop.engine, connector, password=shop.password)

    assert [shop.rows(query) for query in catalogue] == before
    check_source(shop.engine, connector)


def test_a_table_added_to_the_declaration_is_added_to_the_publication(shop: Any, connector: Any) -> None:
    def declared(*tables: str) -> Any:
        return shop.source(tables=tables, name=f"{shop.name}-growing", user=f"{shop.name}_growing")

    wider = declared("public.items", "public.salaries")
    shop.prepared(declared("public.items"))
    with pytest.raises(SourceNotReady, match=r"leaves out public\.salaries"):
        check_source(shop.engine, wider)

    check_source(shop.engine, shop.prepared(wider))


def test_the_password_never_travels_in_a_statement(shop: Any, connector: Any) -> None:
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


def test_everything_that_is_missing_is_named_at_once(shop: Any) -> None:
    absent = shop.source(name=f"{shop.name}-absent", user="nobody_here", tables=("public.items", "public.gone"))

    with pytest.raises(SourceNotReady) as failure:
        check_source(shop.engine, absent)

    assert "table public.gone does not exist" in failure.value.message
    assert "role nobody_here does not exist" in failure.value.message
    assert "publication" in failure.value.message


def test_a_role_without_rights_is_named_with_the_table(shop: Any, connector: Any) -> None:
    shop.run(f"REVOKE SELECT ON items FROM {connector.user}")

    with pytest.raises(SourceNotReady, match=r"may not SELECT from public\.items"):
        check_source(shop.engine, connector)

    shop.prepared(connector)


def test_a_table_that_does_not_exist_stops_the_preparation_before_anything_is_made(shop: Any) -> None:
    user = f"{shop.name}_other"

    with pytest.raises(SourceNotReady, match=r"public\.gone does not exist"):
        shop.prepared(shop.source(user=user, tables=("public.gone",)))

    assert shop.rows(f"SELECT 1 FROM pg_roles WHERE rolname = '{user}'") == []


@pytest.mark.parametrize("name", ['x"; DROP TABLE items; --', "x'; DROP TABLE items; --", "x y", "", "é", "1x"])
def test_hostile_names_execute_nothing(shop: Any, name: str) -> None:
    # Roles may have such names, and are quoted: see test_cdc_doctor.
    with pytest.raises(InvalidIdentifier):
        shop.prepared(shop.source(tables=(f"public.{name}",)))

    assert shop.rows("SELECT to_regclass('items') IS NOT NULL") == [(True,)]


def test_the_statements_for_those_who_run_sql_by_hand_carry_no_password(connector: Any) -> None:
    statements = grant_statements(connector)

    assert statements[0] == f'CREATE ROLE "{connector.user}" LOGIN REPLICATION'
    assert statements[-1].startswith("CREATE PUBLICATION")
    assert "PASSWORD" not in " ".join(statements)


def test_a_role_that_may_not_grant_is_told_who_may(shop: Any, connector: Any, role: Engine) -> None:
    with pytest.raises(SourceNotReady, match="the source database refused") as failure:
        prepare_source(role, connector, password=shop.password)

    assert "superuser" in failure.value.remedy or "prepare_source" in failure.value.remedy


def test_a_database_that_does_not_answer_is_named(shop: Any, connector: Any) -> None:
    nobody = create_engine(shop.engine.url.set(port=9))

    with pytest.raises(SourceNotReady, match="refused") as failure:
        check_source(nobody, connector)

    assert failure.value.place is not None
    assert ":9/" in failure.value.place
