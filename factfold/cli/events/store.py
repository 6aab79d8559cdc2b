"""`factfold store`: status, migrate, export, import, renumber, tenants; in `streams`, what is done to one stream."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import eventstore
from eventstore.errors import StoreNotPrepared
from factfold import on_demand
from factfold.cli.keys import KeyStoreOption, MasterKeysIfAny, named_keys
from factfold.cli.logs import log_to_stderr
from factfold.cli.progress import late_bar
from factfold.cli.shown_values import echo

if TYPE_CHECKING:
    from eventstore import MasterKeys, SqlEventStore
    from eventstore.erasure import KeyStore

app = typer.Typer(help="An event store and its tables.", no_args_is_help=True)

Database = Annotated[
    str, typer.Option("--store-url", envvar="FACTFOLD_STORE_URL", help="SQLAlchemy URL of the store's database.")
]
Schema = Annotated[
    str | None,
    typer.Option(
        "--store-schema",
        envvar="FACTFOLD_STORE_SCHEMA",
        help="The store's database schema (PostgreSQL). A tenant's is tenant_ and its name.",
    ),
]
Source = Annotated[
    str | None,
    typer.Option(
        "--store-source",
        envvar="FACTFOLD_STORE_SOURCE",
        help="The store's CloudEvents source, such as /shop: its service.",
    ),
]
TopicPrefix = Annotated[
    str | None,
    typer.Option(
        "--store-topic-prefix",
        envvar="FACTFOLD_STORE_TOPIC_PREFIX",
        help="The prefix of the topics of new categories, such as a tenant's acme-.",
    ),
]
File = Annotated[Path, typer.Argument(help="The file.", dir_okay=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


Form = Annotated[
    Literal["jsonl", "parquet"] | None, typer.Option("--format", help="Default: by the file's suffix, else jsonl.")
]


@app.callback()
def store() -> None:
    """An event store and its tables."""
    log_to_stderr()


@app.command()
def status(database: Database, schema: Schema = None, as_json: Json = False) -> None:
    """Show the version of the tables, the categories, and what readers wait for. Exit code 3 if not up to date."""
    with existing_store(database, schema) as opened:
        version = opened.version()
        categories = opened.categories() if version.is_current else []
        fence = opened.fence() if version.is_current else None
    if as_json:
        fields = {**dataclasses.asdict(version), "categories": [dataclasses.asdict(one) for one in categories]}
        echo(json.dumps({**fields, "fence": fence and dataclasses.asdict(fence)}))
    else:
        echo(f"version {version.installed or 'none'}, this release needs {version.newest}")
        for one in categories:
            echo(f"category {one.name}: topic {one.topic}, {one.partitions} partitions")
        if fence is not None:
            age = "how long this user may not see" if fence.age is None else f"{fence.age:,.1f} s"
            echo(f"fence: {fence.waiting:,} events wait, {age}" + (f", for {fence.holder}" * bool(fence.holder)))
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
            echo(opened.migration_sql(), nl=False)
            return
        before = opened.version()
        opened.create_tables()
        after = opened.version()
    was = "" if before.installed == after.installed else f", was {before.installed or 'none'}"
    echo(f"version {after.installed}{was}")


@app.command(name="export")
def export_(
    file: File,
    database: Database,
    schema: Schema = None,
    form: Form = None,
    category: Annotated[str | None, typer.Option("--category", help="Only this one's events.")] = None,
    with_keys: Annotated[
        bool, typer.Option("--with-keys", help="The wrapped keys of personal fields too. No erasure reaches the file.")
    ] = False,
) -> None:
    """Write events, schemas and categories to a file, as JSON lines or as Parquet."""
    with existing_store(database, schema) as opened, late_bar("exporting") as tell:
        done = opened.export_file(file, format=form, category=category, keys=with_keys, on_progress=tell)
    keys = f", {done.keys:,} keys" if with_keys else ""
    echo(f"{done.events:,} events of {done.categories:,} categories, {done.schemas:,} schemas{keys}")


@app.command(name="import")
def import_(
    file: File,
    database: Database,
    schema: Schema = None,
    form: Form = None,
    with_keys: Annotated[
        bool, typer.Option("--with-keys", help="Take over the keys of personal fields. Needs the master keys.")
    ] = False,
    with_erasures: Annotated[
        bool, typer.Option("--with-erasures", help="Destroy the keys that the file says were destroyed. For good.")
    ] = False,
    with_topics: Annotated[
        bool, typer.Option("--with-topics", help="Publish new categories to the topics that the file names.")
    ] = False,
    source: Source = None,
    topic_prefix: TopicPrefix = None,
    key_store: KeyStoreOption = None,
    master_keys: MasterKeysIfAny = None,
) -> None:
    """Store the events of an exported file. Repeated, it stores what is missing.

    Give the --store-source that the service opens its store with: it names the topics of new categories.
    """
    keys = named_keys(key_store, master_keys)
    opening = _open(database, schema, keys, source=source, topic_prefix=topic_prefix)
    with opening as opened, late_bar("importing") as tell:
        opened.create_tables()
        done = opened.import_file(
            file, format=form, keys=with_keys, erasures=with_erasures, topics=with_topics, on_progress=tell
        )
    taken = f", {done.keys:,} keys taken over" if with_keys else ""
    archived = f", {done.archived:,} streams archived" if done.archived else ""
    echo(f"{done.imported:,} events imported, {done.present:,} were there{taken}{archived}")


@app.command()
def renumber(
    database: Database,
    schema: Schema = None,
    published: Annotated[bool, typer.Option("--published", help="The outbox connector only warns of updates.")] = False,
) -> None:
    """Number the events of a restored store by the transaction ids of its new cluster."""
    with existing_store(database, schema) as opened:
        by = opened.renumber(published=published)
    echo(f"renumbered by {by:,}" if by else "nothing to do")


@app.command()
def tenants(database: Database, as_json: Json = False) -> None:
    """List the tenants that have a store in a database. Exit code 3 if the tables of one are not up to date."""
    engine = on_demand.engine_for(database)
    versions = {tenant: eventstore.tenant_store(engine, tenant).version() for tenant in eventstore.tenants(engine)}
    engine.dispose()
    if as_json:
        echo(json.dumps({tenant: dataclasses.asdict(version) for tenant, version in versions.items()}))
    else:
        for tenant, version in versions.items():
            echo(f"{tenant}: version {version.installed or 'none'}")
    if not all(version.is_current for version in versions.values()):
        raise typer.Exit(3)


def existing_store(
    database: str,
    schema: str | None,
    *,
    keys: KeyStore | MasterKeys | None = None,
    source: str | None = None,
) -> SqlEventStore:
    """Open a store that a command looks into; StoreNotPrepared for a SQLite file that is not there."""
    url = on_demand.url_of(database)
    if url.get_backend_name() == "sqlite" and url.database and not Path(url.database).exists():
        raise StoreNotPrepared(
            "there is no such file",
            remedy="check the URL, or create the store: factfold store migrate",
            place=url.database,
        )
    return _open(database, schema, keys, source=source)


def _open(
    database: str,
    schema: str | None,
    keys: KeyStore | MasterKeys | None = None,
    *,
    source: str | None = None,
    topic_prefix: str | None = None,
) -> eventstore.SqlEventStore:
    named = on_demand.DEFAULT_SOURCE if source is None else source
    return eventstore.SqlEventStore(database, schema=schema, keys=keys, source=named, topic_prefix=topic_prefix)
