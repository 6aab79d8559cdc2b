"""The views of a command's URL, opened without Spark; and what a command asks of them before it starts Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from factfold import on_demand
from projections.errors import TableStoreUnavailable

if TYPE_CHECKING:
    from projections import ProjectionGroup
    from projections.stores.sql import TableStore


@contextmanager
def opened_views(views_url: str) -> Iterator[TableStore]:
    """Open the table store of a URL; TableStoreUnavailable for a SQLite file that is not there."""
    if (path := on_demand.sqlite_path(views_url)) is not None:
        require_file(path)
    store = on_demand.open_table_store(views_url)
    try:
        yield store
    finally:
        store.close()


def require_file(path: str) -> None:
    """Raise TableStoreUnavailable for a SQLite file that is missing, since its views are made of its own events."""
    if not Path(path).exists():
        raise TableStoreUnavailable(
            "there is no such file",
            remedy="check the URL, or create the event store: factfold store migrate",
            place=path,
        )


def require_serving(views_url: str, group: str) -> None:
    """Raise NoServingGeneration before Spark starts, if no generation of a group serves."""
    with opened_views(views_url) as store:
        store.prepare()  # the tables of a database that has no views yet
        store.serving_state(group)


def require_same_definition(views_url: str, group: ProjectionGroup) -> None:
    """Raise NoServingGeneration, or DefinitionChanged if the code's definition differs from the serving one."""
    with opened_views(views_url) as store:
        store.prepare()
        state = store.serving_state(group.name)
    on_demand.require_unchanged(group, state, state.built.get("columns", {}))
