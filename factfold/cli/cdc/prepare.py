"""`factfold cdc prepare`: a service from an empty database to running connectors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

import cdc
import eventstore
from eventstore.errors import DeclarationError
from factfold import on_demand
from factfold.cli.cdc.compare import app  # one app, which the modules of commands fill in turn
from factfold.cli.cdc.connectors import (
    ConnectUrl,
    Json,
    Kafka,
    Reference,
    Stack,
    Timeout,
    brokers_at,
    database,
    declared,
    worker,
)
from factfold.cli.completions import completes
from factfold.cli.definitions import load_aggregate, load_definition
from factfold.cli.events.store import Schema, Source, TopicPrefix
from factfold.cli.shown_values import echo

if TYPE_CHECKING:
    from sqlalchemy import Engine, MetaData

    from cdc import Connector, PreparedStep
    from cdc.preparing.steps import Outcome

__all__ = ["app"]

MARKS: Final[dict[Outcome, str]] = {"made": "✓", "present": "=", "missing": "+", "unknown": "?", "failed": "✗"}

SourceUrl = Annotated[
    str,
    typer.Option(
        "--source-url",
        envvar="FACTFOLD_SOURCE_URL",
        help="SQLAlchemy URL of the service's database, as the owner of its tables.",
    ),
]
AdminUrl = Annotated[
    str | None,
    typer.Option(
        "--admin-url",
        envvar="FACTFOLD_ADMIN_URL",
        help="SQLAlchemy URL of a superuser of that server: creates missing databases and roles.",
    ),
]
SecretsDir = Annotated[
    Path | None,
    typer.Option(
        "--secrets-dir",
        envvar="FACTFOLD_SECRETS_DIR",
        help="Folder of the worker's secrets files on this machine. Default: the folder that the connectors name.",
    ),
]
Aggregates = Annotated[
    list[str] | None,
    typer.Option(
        "--aggregate",
        help="An aggregate of the service, as module:name. May be repeated.",
        autocompletion=completes("aggregate"),
    ),
]
Tables = Annotated[
    list[str] | None,
    typer.Option(
        "--tables", help="The service's own tables: a declarative base or a table, as module:name. May be repeated."
    ),
]
ViewsUrl = Annotated[
    str | None,
    typer.Option("--views-url", envvar="FACTFOLD_VIEWS_URL", help="SQLAlchemy URL of the views' database."),
]
InboxUrl = Annotated[
    str | None,
    typer.Option("--inbox-url", envvar="FACTFOLD_INBOX_URL", help="SQLAlchemy URL of the handlers' database."),
]
Ask = Annotated[
    bool, typer.Option("--ask", help="Ask for the password of each new role. Default: it is generated, or in the file.")
]


@app.command()
def prepare(
    reference: Reference,
    source_url: SourceUrl,
    admin_url: AdminUrl = None,
    aggregates: Aggregates = None,
    tables: Tables = None,
    views_url: ViewsUrl = None,
    inbox_url: InboxUrl = None,
    secrets_dir: SecretsDir = None,
    ask: Ask = False,
    schema: Schema = None,
    store_source: Source = None,
    topic_prefix: TopicPrefix = None,
    connect_url: ConnectUrl = None,
    kafka: Kafka = None,
    stack: Stack = None,
    timeout: Timeout = 90.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what is missing, and change nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Create what a service lacks: databases, roles, tables, rights, secrets, topics, connectors. Safe to repeat.

    A step that needs more rights fails with the SQL for a role that has them. Exit code 3 if a dry run finds something
    to do.
    """
    import stamina

    stamina.instrumentation.set_on_retry_hooks([])  # to wait for a new topic is part of its step
    connectors = list(declared(reference, stack))
    owned, named = [load_aggregate(one) for one in aggregates or ()], _metadata(tables or ())
    with ExitStack() as opened:
        source, admin = opened.enter_context(database(source_url)), _maybe(opened, admin_url)
        service = cdc.Service(
            connectors=connectors,
            source=source,
            worker=opened.enter_context(worker(connect_url, patience=timeout, stack=stack)),
            settings=_settings(kafka),
            admin=admin,
            databases=_on_its_server(opened, source, [views_url, inbox_url]),
            store=_store(connectors, source, schema=schema, source_name=store_source, topic_prefix=topic_prefix),
            aggregates=owned,
            tables=named,
            secrets_dir=secrets_dir,
            password=_asked if ask else None,
            timeout=timeout,
        )
        steps = cdc.prepare_service(service, dry_run=dry_run, on_step=_show_json if as_json else _show)
    if not as_json:
        _show_remedies(steps)
    if any(step.outcome == "failed" for step in steps):
        raise typer.Exit(1)
    if any(step.outcome in ("missing", "unknown") for step in steps):
        raise typer.Exit(3)


def _show(step: PreparedStep) -> None:
    detail = f": {step.detail}" if step.detail else ""
    echo(f"{MARKS[step.outcome]} {step.step} {step.target}{detail}")
    for statement in step.sql:
        echo(f"    {statement}" + ";" * (not statement.startswith("--")))


def _show_remedies(steps: Sequence[PreparedStep]) -> None:
    """The remedies of a dry run, which goes on after a failure. The error of a run is shown as every error is."""
    for step in steps:
        if step.error is not None:
            echo(f"remedy for {step.step} {step.target}: {step.error.remedy}")


def _show_json(step: PreparedStep) -> None:
    error = None if step.error is None else {"cause": step.error.message, "remedy": step.error.remedy}
    fields = {"step": step.step, "target": step.target, "outcome": step.outcome, "detail": step.detail}
    echo(json.dumps({**fields, "sql": list(step.sql), "error": error}))


def _asked(role: str) -> str:
    return str(typer.prompt(f"Password of {role}", hide_input=True, confirmation_prompt=True, err=True))


def _metadata(specs: Sequence[str]) -> list[MetaData]:
    """Each collection of tables once. All modules are imported before one is used: each may add tables to it."""
    collections = [_metadata_of(spec) for spec in specs]
    return list({id(one): one for one in collections}.values())


def _metadata_of(spec: str) -> MetaData:
    definition = load_definition(spec, object, what="declarative base", example="shop.customers:Base")
    metadata: Any = getattr(definition, "metadata", definition)
    if not hasattr(metadata, "sorted_tables"):
        raise DeclarationError(
            f"{spec!r} has no tables", remedy="name a declarative base or a MetaData of SQLAlchemy", place=spec
        )
    return cast("MetaData", metadata)


def _settings(kafka: str | None) -> eventstore.Settings:
    return eventstore.Settings() if kafka is None else brokers_at(kafka)


def _maybe(opened: ExitStack, url: str | None) -> Engine | None:
    return None if url is None else opened.enter_context(database(url))


def _on_its_server(opened: ExitStack, source: Engine, urls: Sequence[str | None]) -> list[Engine]:
    """The databases that are on the server of the source. A file, or another server, is not prepared."""
    engines = [opened.enter_context(database(url)) for url in urls if url and url.startswith("postgresql")]
    place = (source.url.get_backend_name(), source.url.host, source.url.port)
    return [one for one in engines if (one.url.get_backend_name(), one.url.host, one.url.port) == place]


def _store(
    connectors: Sequence[Connector],
    engine: Engine,
    *,
    schema: str | None,
    source_name: str | None,
    topic_prefix: str | None,
) -> eventstore.SqlEventStore | None:
    if not any(isinstance(one, cdc.OutboxSource) for one in connectors):
        return None
    return eventstore.SqlEventStore(
        engine, schema=schema, source=source_name or on_demand.DEFAULT_SOURCE, topic_prefix=topic_prefix
    )
