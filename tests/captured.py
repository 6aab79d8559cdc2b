"""Captured tables of the kind that views are planned over: columns by name alone."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from projections import Table


def captured(name: str, *columns: str, key: tuple[str, ...] = ("id",), **typed: Any) -> Table:
    """A table of integers, texts where a name ends in `name`, and columns whose type is given."""
    kinds = {c: sa.Text if c.endswith("name") else sa.BigInteger for c in (*key, *columns)} | typed
    model = sa.Table(name, sa.MetaData(), *(sa.Column(c, kind, primary_key=c in key) for c, kind in kinds.items()))
    return Table.from_changelog(model, topic=f"shop.public.{name}")
