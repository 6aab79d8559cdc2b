"""The home of dead letters that a command's options name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

import eventstore
import projections
from factfold import on_demand
from factfold.cli.brokers import reached_settings
from factfold.cli.completions import completes
from factfold.cli.given_options import chosen_by
from factfold.cli.views.branches import load_branches

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from eventstore import Settings, SqlEventStore
    from eventstore.deadletters import Letters
    from projections.stores.sql import TableStore

Topic = Annotated[str, typer.Argument(help="The topic whose records were given up.")]
Group = Annotated[
    str | None,
    typer.Argument(help="The group that gave them up: a subscription's or a projection's. None for branches."),
]
Database = Annotated[
    str | None,
    typer.Option(
        "--inbox-url",
        envvar="FACTFOLD_INBOX_URL",
        help="SQLAlchemy URL of the handler's database, for a subscription that reads a store.",
    ),
]
StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store-url",
        envvar="FACTFOLD_STORE_URL",
        help="SQLAlchemy URL of that store, if it is in another database.",
    ),
]
Schema = Annotated[
    str | None,
    typer.Option("--store-schema", envvar="FACTFOLD_STORE_SCHEMA", help="That store's database schema (PostgreSQL)."),
]
Views = Annotated[
    str | None,
    typer.Option(
        "--views-url",
        envvar="FACTFOLD_VIEWS_URL",
        help="SQLAlchemy URL of a projection's views, for the records it has set aside.",
    ),
]


class HomeKind(StrEnum):
    """Where dead letters are."""

    TOPIC = "topic"
    INBOX = "inbox"
    VIEWS = "views"


Kind = Annotated[
    HomeKind | None,
    typer.Option(
        "--home",
        callback=chosen_by({"database": HomeKind.INBOX, "views_url": HomeKind.VIEWS}, otherwise=HomeKind.TOPIC),
        help="Where the letters are. Default: where --inbox-url or --views-url says, else in a topic.",
    ),
]
Definition = Annotated[
    str | None,
    typer.Option(
        "--branches",
        help="The definition of the branches, to replay letters into them.",
        autocompletion=completes("branches"),
    ),
]


@dataclass(frozen=True)
class Home:
    """What the options say of the home."""

    topic: Topic
    group: Group = None
    home: Kind = None
    database: Database = None
    store_url: StoreUrl = None
    schema: Schema = None
    views_url: Views = None


@contextmanager
def opened_letters(home: Home, branches: str | None = None) -> Iterator[Letters]:
    """Open the letters in their home. Raises BadParameter if the options name none."""
    if home.group is None and home.home is not HomeKind.TOPIC:
        raise typer.BadParameter("name the group behind the topic")
    with ExitStack() as stack:
        at, engine = _place(home, stack)
        topic = home.topic if branches is None or home.group is not None else load_branches(branches)
        yield stack.enter_context(projections.letters(at, topic, group=home.group, engine=engine))


def _place(home: Home, stack: ExitStack) -> tuple[Settings | SqlEventStore | TableStore, Engine | None]:
    """Open what has the letters, and the database of the handler that gave them up."""
    if home.home is HomeKind.VIEWS:
        return stack.enter_context(closing(on_demand.open_table_store(_url(home.views_url, "--views-url")))), None
    if home.home is HomeKind.INBOX:
        engine = stack.enter_context(on_demand.opened_engine(_url(home.database, "--inbox-url")))
        store = eventstore.SqlEventStore(engine if home.store_url is None else home.store_url, schema=home.schema)
        return stack.enter_context(store), engine
    return reached_settings(without_kafka="letters are in the handler's database: TOPIC GROUP --inbox-url URL"), None


def _url(url: str | None, option: str) -> str:
    if url is None:
        raise typer.BadParameter(f"give {option}, where the letters are")
    return url
