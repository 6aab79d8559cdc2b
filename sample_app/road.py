"""One service's road: a database, its event store and tables, the two connectors, the topics, a database of views."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from cdc import ConnectClient, OutboxSource, PostgresSource, apply, prepare_source, prepare_topics, write_secrets
from eventstore import Aggregate, Settings, SqlEventStore
from eventstore.kafka.admin import ensure_topics
from factfold.stack import StackInfo
from sample_app.background import wait_until

if TYPE_CHECKING:
    from sqlalchemy import MetaData

PARTITIONS = 4


@dataclass(frozen=True)
class Road:
    """Where one service's commands go in, and where its views come out."""

    settings: Settings
    store: SqlEventStore
    engine: sa.Engine
    views_url: str
    rows: PostgresSource
    slots: tuple[str, ...]

    def close(self) -> None:
        """Close the connections to the service's database."""
        self.engine.dispose()

    def wait_until_captured(self, *, deadline: float = 600.0) -> None:
        """Wait until everything committed so far is in Kafka: the slots have confirmed this point of the log."""
        passed = sa.text(
            "SELECT coalesce(bool_and(confirmed_flush_lsn >= CAST(:goal AS pg_lsn)), false)"
            " FROM pg_replication_slots WHERE slot_name = ANY(:slots)"
        )
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            goal = connection.scalar(sa.text("SELECT CAST(pg_current_wal_insert_lsn() AS text)"))
            asked = {"goal": goal, "slots": list(self.slots)}
            wait_until(
                lambda: bool(connection.scalar(passed, asked)), deadline=deadline, what=f"connectors confirm {goal}"
            )


def lay_road(
    info: StackInfo,
    name: str,
    *,
    aggregates: Sequence[type[Aggregate]],
    tables: MetaData,
    history: Sequence[str] = (),
    partitions: int = PARTITIONS,
) -> Road:
    """Create whatever of the road is missing, up to two running connectors; again and again with the same result.

    ``name`` names the database, the topic prefix and the connectors. ``tables`` are captured as they stand, rows that
    are there before included; the topics of those in ``history`` keep every change, for views that ask how a row was.
    """
    settings = Settings.for_broker(info.bootstrap_servers)
    service_url, views_url = (database_url(info, database) for database in (name, f"{name}_views"))
    engine = sa.create_engine(service_url)
    # One service on a stack of its own: its views, branches and subscriptions name topics by categories alone.
    store = SqlEventStore(engine, source=f"/{name}", topic_prefix="")
    store.create_tables()
    for aggregate in aggregates:
        store.declare_category(aggregate.category, partitions=partitions)
    store.register(*aggregates)
    tables.create_all(engine)
    prepare_topics(settings, stores=[store])
    captured = [f"public.{table.name}" for table in tables.sorted_tables]
    kept = [f"public.{table}" for table in history]
    rows, slots = _connect(info, name, settings, engine, captured=captured, history=kept, partitions=partitions)
    return Road(settings, store, engine, views_url, rows, slots)


def _connect(
    info: StackInfo,
    name: str,
    settings: Settings,
    engine: sa.Engine,
    *,
    captured: Sequence[str],
    history: Sequence[str],
    partitions: int,
) -> tuple[PostgresSource, tuple[str, ...]]:
    """Apply the outbox connector and the one of the ordinary tables, under one role that may read just these."""
    password = _kept_password(info, name) or secrets.token_urlsafe(18)
    reference = write_secrets(info.secrets_dir, name, values={"password": password})["password"]
    source: dict[str, Any] = {
        "host": info.postgres.host,
        "port": info.postgres.port,
        "database": name,
        "user": f"{name}_cdc",
        "password": reference,
        "partitions": partitions,
    }
    # Each connector has a prefix of its own: two with one prefix fight over the worker's metrics for a minute.
    outbox = OutboxSource(name=f"{name}_outbox", topic_prefix=f"{name}_outbox", **source)
    rows = PostgresSource(
        name=f"{name}_tables", topic_prefix=name, tables=tuple(captured), history=tuple(history), **source
    )
    ensure_topics(settings, rows.topic_specs)
    with ConnectClient(info.connect_url) as client:
        for connector in (outbox, rows):
            prepare_source(engine, connector, password=password)
            apply(client, connector, source=engine, settings=settings)
    return rows, (outbox.slot, rows.slot)


def _kept_password(info: StackInfo, name: str) -> str | None:
    """The connectors' password of an earlier call: running connectors hold it, and may reconnect at any moment."""
    kept = info.secrets_dir / f"{name}.properties"
    return kept.read_text().strip().removeprefix("password=") if kept.exists() else None


def database_url(info: StackInfo, name: str) -> str:
    """The SQLAlchemy URL of a database, which is created where it is missing."""
    admin = sa.create_engine(info.postgres.url(), isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        known = connection.scalar(sa.text("SELECT 1 FROM pg_database WHERE datname = :name"), {"name": name})
        if not known:
            connection.execute(sa.text(f"CREATE DATABASE {admin.dialect.identifier_preparer.quote(name)}"))
    admin.dispose()
    return info.postgres.url(name)
