"""`factfold cdc prepare`: a service from an empty database to running connectors."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

import cdc
import eventstore
from eventstore.errors import DeclarationError
from factfold import on_demand
from factfold.cli.cdc.compare import app  # one app, which the modules of commands fill in turn
from factfold.cli.cdc.connectors import Declared, Kafka, Timeout, brokers_at, database
from factfold.cli.definitions import load_aggregate, load_definition
from factfold.cli.events.store import Schema, Source, TopicPrefix
from factfold.cli.options import definition, option, setting
from factfold.cli.show import Out, answer, echo, failure_fields

if TYPE_CHECKING:
    from sqlalchemy import Engine, MetaData

    from cdc import Connector
    from cdc.preparing.steps import Outcome, PreparedStep

__all__ = ["app"]

MARKS: Final[dict[Outcome, str]] = {"made": "✓", "present": "=", "missing": "+", "unknown": "?", "failed": "✗"}


@dataclass(frozen=True)
class Own:
    """What the service has of its own: aggregates, tables and an event store."""

    aggregates: Annotated[
        list[str] | None,
        definition("An aggregate of the service, as module:name. May be repeated.", "aggregate", name="--aggregate"),
    ] = None
    tables: Annotated[
        list[str] | None,
        option("--tables", "The service's own tables: a declarative base or a table, as module:name. May be repeated."),
    ] = None
    schema: Schema = None
    store_source: Source = None
    topic_prefix: TopicPrefix = None

    def store(self, connectors: Sequence[Connector], engine: Engine) -> eventstore.SqlEventStore | None:
        """The event store, if one of the connectors reads its outbox."""
        if not any(isinstance(one, cdc.OutboxSource) for one in connectors):
            return None
        source = self.store_source or on_demand.DEFAULT_SOURCE
        return eventstore.SqlEventStore(engine, schema=self.schema, source=source, topic_prefix=self.topic_prefix)


@app.command()
def prepare(
    of: Declared,
    source_url: Annotated[
        str, setting("--source-url", "SQLAlchemy URL of the service's database, as the owner of its tables.")
    ],
    own: Own,
    out: Out,
    admin_url: Annotated[
        str | None,
        setting("--admin-url", "SQLAlchemy URL of a superuser of that server: creates missing databases and roles."),
    ] = None,
    views_url: Annotated[str | None, setting("--views-url", "SQLAlchemy URL of the views' database.")] = None,
    inbox_url: Annotated[str | None, setting("--inbox-url", "SQLAlchemy URL of the handlers' database.")] = None,
    secrets_dir: Annotated[
        Path | None,
        setting(
            "--secrets-dir",
            "Folder of the worker's secrets files on this machine. Default: the folder that the connectors name.",
        ),
    ] = None,
    ask: Annotated[
        bool, option("--ask", "Ask for the password of each new role. Default: it is generated, or in the file.")
    ] = False,
    kafka: Kafka = None,
    timeout: Timeout = 90.0,
    dry_run: Annotated[bool, option("--dry-run", "Show what is missing, and change nothing.")] = False,
) -> None:
    """Create what a service lacks: databases, roles, tables, rights, secrets, topics, connectors. Safe to repeat.

    A step that needs more rights fails with the SQL for a role that has them. Exit code 3 if a dry run finds something
    to do.
    """
    import stamina

    stamina.instrumentation.set_on_retry_hooks([])  # to wait for a new topic is part of its step
    connectors = of.connectors
    owned, named = [load_aggregate(one) for one in own.aggregates or ()], _metadata(own.tables or ())
    with ExitStack() as opened:
        source = opened.enter_context(database(source_url))
        service = cdc.Service(
            connectors=connectors,
            source=source,
            worker=opened.enter_context(of.worker(timeout)),
            settings=eventstore.Settings() if kafka is None else brokers_at(kafka),
            admin=None if admin_url is None else opened.enter_context(database(admin_url)),
            databases=_on_its_server(opened, source, [views_url, inbox_url]),
            store=own.store(connectors, source),
            aggregates=owned,
            tables=named,
            secrets_dir=secrets_dir,
            password=_asked if ask else None,
            timeout=timeout,
        )
        steps = cdc.prepare_service(service, dry_run=dry_run, on_step=lambda step: _show(step, out))
    if not out.as_json:
        _show_remedies(steps)
    if any(step.outcome == "failed" for step in steps):
        raise typer.Exit(1)
    answer(not any(step.outcome in ("missing", "unknown") for step in steps))


def _show(step: PreparedStep, out: Out) -> None:
    error = None if step.error is None else failure_fields(step.error)
    fields = {"step": step.step, "target": step.target, "outcome": step.outcome, "detail": step.detail}
    said = f"{MARKS[step.outcome]} {step.step} {step.target}{f': {step.detail}' if step.detail else ''}"
    statements = (f"    {statement}" + ";" * (not statement.startswith("--")) for statement in step.sql)
    out.show({**fields, "sql": step.sql, "error": error}, [said, *statements])


def _show_remedies(steps: Sequence[PreparedStep]) -> None:
    """The remedies of a dry run, which goes on after a failure. The error of a run is shown as every error is."""
    for step in steps:
        if step.error is not None:
            echo(f"remedy for {step.step} {step.target}: {step.error.remedy}")


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


def _on_its_server(opened: ExitStack, source: Engine, urls: Sequence[str | None]) -> list[Engine]:
    """The databases that are on the server of the source. A file, or another server, is not prepared."""
    engines = [opened.enter_context(database(url)) for url in urls if url and url.startswith("postgresql")]
    place = (source.url.get_backend_name(), source.url.host, source.url.port)
    return [one for one in engines if (one.url.get_backend_name(), one.url.host, one.url.port) == place]
