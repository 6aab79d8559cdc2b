"""Changes of the store's tables, one module a change, in the order of their numbers; run by alembic."""
