"""The event store on SQL: PostgreSQL in production, SQLite embedded."""
