"""The home of dead letters that a command's options name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

if TYPE_CHECKING:
    from eventstore.deadletters import Letters

Topic = Annotated[str, typer.Argument(help="The topic whose records were given up.")]
Group = Annotated[
    str | None,
    typer.Argument(help="The group that gave them up: a subscription's or a projection's. None for branches."),
]
Database = Annotated[
    str | None,
    typer.Option("--database", help="SQLAlchemy URL of the handler's database, for a subscription that reads a store."),
]
StoreUrl = Annotated[
    str | None, typer.Option("--store-url", help="SQLAlchemy URL of that store, where it is another database.")
]
Schema = Annotated[str | None, typer.Option("--schema", help="That store's database schema (PostgreSQL).")]
Views = Annotated[
    str | None,
    typer.Option("--views-url", help="SQLAlchemy URL of a projection's views, for the records it has set aside."),
]
Definition = Annotated[
    str | None, typer.Option("--branches", help="The definition of the branches, to replay letters into them.")
]


class Home(NamedTuple):
    """What the options say of the home."""

    topic: str
    group: str | None
    database: str | None = None
    store_url: str | None = None
    schema: str | None = None
    views_url: str | None = None
    branches: str | None = None


@contextmanager
def opened_letters(home: Home) -> Iterator[Letters]:
    """Open the letters in their home. Raises BadParameter if the options name none."""
    if home.database is not None and home.views_url is not None:
        raise typer.BadParameter("--database and --views-url name two homes: give one of them")
    if home.group is None and (home.database or home.views_url):
        raise typer.BadParameter("name the group behind the topic")
    with ExitStack() as stack:
        if home.views_url is not None:
            yield stack.enter_context(_set_aside(home))
        elif home.database is not None:
            yield stack.enter_context(_of_store(home))
        else:
            yield stack.enter_context(_of_topic(home))


@contextmanager
def _set_aside(home: Home) -> Iterator[Letters]:
    from projections.tablestore.letters import set_aside_letters
    from projections.tablestore.opening import open_table_store

    store = open_table_store(home.views_url or "")
    try:
        with set_aside_letters(store, home.topic, group=home.group or "") as letters:
            yield letters
    finally:
        store.close()


@contextmanager
def _of_store(home: Home) -> Iterator[Letters]:
    from eventstore import SqlEventStore
    from eventstore.backends.sql.engines import opened_engine
    from eventstore.deadletters import store_letters

    with (
        opened_engine(home.database or "") as engine,
        SqlEventStore(engine if home.store_url is None else home.store_url, schema=home.schema) as store,
        store_letters(store, home.topic, group=home.group or "", engine=engine) as letters,
    ):
        yield letters


def _of_topic(home: Home) -> Letters:
    from eventstore import Settings
    from eventstore.deadletters import group_letters

    if home.group is not None:
        return group_letters(Settings(), home.topic, group=home.group)
    from factfold.cli.branches import load_branches
    from projections.branching.letters import branch_letters

    return branch_letters(Settings(), home.topic if home.branches is None else load_branches(home.branches))
