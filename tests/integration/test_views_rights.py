"""Rights of roles in the views' PostgreSQL, and what is said of a role that lacks them."""

from __future__ import annotations

import uuid

import pytest
import sqlalchemy as sa

from projections import rebuild
from projections.errors import ProjectionError, TableStoreUnavailable
from projections.stores.postgres import PostgresTableStore
from tests.errors import raises
from tests.integration.log_writer import LogWriter
from tests.integration.rebuild_watching import growing_group, opened
from tests.integration.tickets import Ticket


def test_a_wrong_password_of_the_views_database_is_told_without_the_password(postgres):
    url = postgres.info.postgres.url("postgres").replace(postgres.info.postgres.password, "wrong-sentinel")
    store = PostgresTableStore(url)
    with pytest.raises(TableStoreUnavailable, match="password authentication failed") as caught:
        store.prepare()
    assert "wrong-sentinel" not in str(caught.value) + repr(store)
    store.close()


@pytest.fixture
def granted(database):
    """A database, a role of it that may log in and nothing else, and a function that gives it more."""
    url, role = sa.make_url(database()), f"viewer_{uuid.uuid4().hex[:8]}"
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")

    def execute(statement):
        with engine.connect() as connection:
            connection.exec_driver_sql(statement)

    execute(f"CREATE ROLE {role} LOGIN PASSWORD 'sentinel'")
    as_role = url.set(username=role, password="sentinel").render_as_string(hide_password=False)
    yield as_role, lambda what: execute(f"GRANT CREATE ON {what} TO {role}"), url.database
    engine.dispose()


def test_a_right_that_the_role_of_the_views_lacks_is_told_and_with_it_the_views_are_built(
    granted, settings, environment
):
    url, grant, name = granted
    writer = LogWriter(settings, Ticket)
    with raises(ProjectionError, code="right-missing", match="permission denied") as caught:
        environment(PostgresTableStore(url))
    assert "CREATE on the database" in caught.value.remedy
    assert "sentinel" not in str(caught.value)
    grant(f"DATABASE {name}")
    env = environment(PostgresTableStore(url))
    writer.send(opened(writer, 0, 3))
    with raises(ProjectionError, code="right-missing", match="permission denied for schema public"):
        rebuild(env, growing_group(writer))
    grant("SCHEMA public")
    assert rebuild(env, growing_group(writer)).rows["ticket_rows"] == 3


def test_grants_on_a_view_outlive_a_rebuild(settings, environment):
    env, group = environment(), growing_group(LogWriter(settings, Ticket))
    rebuild(env, group)
    reader = f"reader_{group.name}"
    with env.store.transaction() as connection:
        connection.execute(sa.text(f"CREATE ROLE {reader}"))
        connection.execute(sa.text(f"GRANT SELECT ON ticket_rows TO {reader}"))
    rebuild(env, group)
    with env.store.transaction() as connection:
        connection.execute(sa.text(f"SET LOCAL ROLE {reader}"))
        assert connection.scalar(sa.text("SELECT count(*) FROM ticket_rows")) == 0
