"""What is scheduled has a position: commands and timers of one moment are due in the order of their declaration."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from eventstore.backends.sql.values import needed, optional

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
    op.create_table(_TABLE, *_columns(), sqlite_autoincrement=True)
    op.execute(f"INSERT INTO {_TABLE} ({_NAMES}) SELECT {_NAMES} FROM {_TABLE}_before_0007 ORDER BY rowid")  # noqa: S608
    op.execute(f"DROP TABLE {_TABLE}_before_0007")
    op.create_index(f"{_TABLE}_due", _TABLE, ["due"])
    op.create_index(f"{_TABLE}_instance", _TABLE, ["process", "instance"])


_NAMES = (
    "id, due, kind, name, target, arguments, expires, process, instance, answered, attempts, error, set_at, "
    "correlation_id, causation_id, traceparent"
)


def _columns() -> list[sa.schema.SchemaItem]:
    return [
        sa.Column("position", sa.Integer, primary_key=True),
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("due", sa.DateTime(timezone=True)),
        *needed(sa.Text, "kind", "name", "target", "arguments"),
        sa.Column("expires", sa.DateTime(timezone=True)),
        *optional(sa.Text, "process", "instance"),
        sa.Column("answered", sa.Boolean, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("set_at", sa.DateTime(timezone=True), nullable=False),
        *optional(sa.Text, "correlation_id", "causation_id", "traceparent"),
        sa.UniqueConstraint("id", name=_KEY),
    ]
