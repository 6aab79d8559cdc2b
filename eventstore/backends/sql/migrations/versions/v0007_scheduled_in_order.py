"""What is scheduled has a position: commands and timers of one moment are due in the order of their declaration."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from eventstore.backends.sql.migrations.versions.v0006_processes import scheduled_columns

revision = "0007"
down_revision = "0006"

_TABLE = "factfold_scheduled"
_KEY = f"{_TABLE}_id_key"


def upgrade() -> None:
    """Number the rows; PostgreSQL adds a column, SQLite copies the table in the order of its inserts."""
    if op.get_context().dialect.name == "postgresql":
        position = sa.Column("position", sa.BigInteger, sa.Identity(), nullable=False)
        op.add_column(_TABLE, position)
        op.drop_constraint(f"{_TABLE}_pkey", _TABLE)
        op.create_primary_key(f"{_TABLE}_pkey", _TABLE, ["position"])
        op.create_unique_constraint(_KEY, _TABLE, ["id"])
        return
    op.execute(f"ALTER TABLE {_TABLE} RENAME TO {_TABLE}_before_0007")
    for index in (f"{_TABLE}_due", f"{_TABLE}_instance"):
        op.execute(f"DROP INDEX {index}")
    columns = [sa.Column("id", sa.Uuid, nullable=False), *scheduled_columns()]
    names = ", ".join(column.name for column in columns)
    position = sa.Column("position", sa.Integer, primary_key=True)
    op.create_table(_TABLE, position, *columns, sa.UniqueConstraint("id", name=_KEY), sqlite_autoincrement=True)
    op.execute(f"INSERT INTO {_TABLE} ({names}) SELECT {names} FROM {_TABLE}_before_0007 ORDER BY rowid")  # noqa: S608
    op.execute(f"DROP TABLE {_TABLE}_before_0007")
    op.create_index(f"{_TABLE}_due", _TABLE, ["due"])
    op.create_index(f"{_TABLE}_instance", _TABLE, ["process", "instance"])
