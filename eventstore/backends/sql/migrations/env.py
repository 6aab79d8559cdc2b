"""How alembic runs the store's migrations: on the connection it is given, or as SQL text.

Alembic executes this file. It looks at the store's own version table and at no other, and a migration names tables
without their schema: the search path leads there.
"""

from __future__ import annotations

from typing import Any

from alembic import context

from eventstore.backends.sql.models import MIGRATIONS


def _run() -> None:
    given = context.config.attributes
    options: dict[str, Any] = {"version_table": MIGRATIONS, "version_table_schema": given["schema"]}
    if context.is_offline_mode():
        context.configure(dialect_name=given["dialect"], literal_binds=True, **options)
    else:
        context.configure(connection=given["connection"], **options)
    with context.begin_transaction():
        if given["schema"] is not None:
            # The name was checked: a lower-case word.
            context.execute(f'SET LOCAL search_path TO "{given["schema"]}"')
        context.run_migrations()


_run()
