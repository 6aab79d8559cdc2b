"""One service's road: a database, its event store and tables, the two connectors, the topics, a database of views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa

from cdc import ConnectClient, OutboxSource, PostgresSource, Service, prepare_service
from eventstore import Aggregate, Settings, SqlEventStore
from factfold.stack import StackInfo
from factfold.stack.postgres import create_database
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
    engine, views = (sa.create_engine(info.postgres.url(database)) for database in (name, f"{name}_views"))
    admin = sa.create_engine(info.postgres.url())
    # One service on a stack of its own: its views, branches and subscriptions name topics by categories alone.
    store = SqlEventStore(engine, source=f"/{name}", topic_prefix="")
    captured = [f"public.{table.name}" for table in tables.sorted_tables]
    outbox, rows = _connectors(
        info, name, captured=captured, history=[f"public.{table}" for table in history], partitions=partitions
    )
    with ConnectClient(info.connect_url) as client:
        prepare_service(
            Service(
                connectors=[outbox, rows],
                source=engine,
                worker=client,
                settings=settings,
                admin=admin,
                databases=[views],
                store=store,
                aggregates=aggregates,
                tables=[tables],
            )
        )
    views.dispose()
    admin.dispose()
    return Road(settings, store, engine, info.postgres.url(f"{name}_views"), rows, (outbox.slot, rows.slot))


def _connectors(
    info: StackInfo, name: str, *, captured: Sequence[str], history: Sequence[str], partitions: int
) -> tuple[OutboxSource, PostgresSource]:
    """The outbox and the ordinary tables, under one role that may read just these."""
    host, port, user = info.postgres.host, info.postgres.port, f"{name}_cdc"
    password = f"${{file:{info.secrets_dir}/{name}.properties:password}}"
    # Each connector has a prefix of its own: two with one prefix fight over the worker's metrics for a minute.
    outbox = OutboxSource(
        name=f"{name}_outbox", topic_prefix=f"{name}_outbox", host=host, port=port, database=name, user=user,
        password=password, partitions=partitions,
    )  # fmt: skip
    rows = PostgresSource(
        name=f"{name}_tables", topic_prefix=name, host=host, port=port, database=name, user=user, password=password,
        partitions=partitions, tables=tuple(captured), history=tuple(history),
    )  # fmt: skip
    return outbox, rows


def database_url(info: StackInfo, name: str) -> str:
    """The SQLAlchemy URL of a database, which is created if it is missing."""
    create_database(info, name)
    return info.postgres.url(name)
