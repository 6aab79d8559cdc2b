"""`factfold store`: status, migrate."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated

import typer

from factfold.cli.logs import log_to_stderr

if TYPE_CHECKING:
    from eventstore import SqlEventStore

app = typer.Typer(help="An event store and its tables.", no_args_is_help=True)

Database = Annotated[
    str, typer.Option("--database", envvar="FACTFOLD_STORE_URL", help="SQLAlchemy URL of the store's database.")
]
Schema = Annotated[
    str | None,
    typer.Option("--schema", envvar="FACTFOLD_STORE_SCHEMA", help="The store's database schema (PostgreSQL)."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def store() -> None:
    """An event store and its tables."""
    log_to_stderr()


@app.command()
def status(database: Database, schema: Schema = None, as_json: Json = False) -> None:
    """Show the version of the tables, the categories, and what readers wait for; exit code 3 if not up to date."""
    with _open(database, schema) as opened:
        version = opened.version()
        categories = opened.categories() if version.is_current else []
        fence = opened.fence() if version.is_current else None
    if as_json:
        told = {**dataclasses.asdict(version), "categories": [dataclasses.asdict(one) for one in categories]}
        typer.echo(json.dumps({**told, "fence": fence and dataclasses.asdict(fence)}))
    else:
        typer.echo(f"version {version.found or 'none'}, this release wants {version.newest}")
        for one in categories:
            typer.echo(f"category {one.name}: topic {one.topic}, {one.partitions} partitions")
        if fence is not None:
            typer.echo(f"fence: {fence.waiting:,} events wait" + (f" for {fence.holder}" if fence.holder else ""))
    if not version.is_current:
        raise typer.Exit(3)


@app.command()
def migrate(
    database: Database,
    schema: Schema = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the SQL and execute nothing.")] = False,
) -> None:
    """Create the tables, or bring those of an older release up to date."""
    with _open(database, schema) as opened:
        if dry_run:
            typer.echo(opened.migration_sql(), nl=False)
            return
        before = opened.version()
        opened.create_tables()
        after = opened.version()
    typer.echo(f"version {after.found}" + ("" if before.found == after.found else f", was {before.found or 'none'}"))


def _open(database: str, schema: str | None) -> SqlEventStore:
    from eventstore import SqlEventStore

    return SqlEventStore(database, schema=schema)
