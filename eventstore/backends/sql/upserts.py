"""An INSERT that can resolve conflicts: PostgreSQL and SQLite spell it alike, SQLAlchemy keeps it in two places."""

from __future__ import annotations

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite


def upsert(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    """Begin an INSERT that takes `on_conflict_do_nothing` or `on_conflict_do_update`."""
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)
