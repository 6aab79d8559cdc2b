"""The event store on SQL: PostgreSQL in production, SQLite embedded."""

from __future__ import annotations

from eventstore.backends.sql.store import SqlEventStore

__all__ = ["SqlEventStore"]
