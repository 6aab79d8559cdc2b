"""What the commands about connectors share: their options, the worker, the database, declarations, what is shown.

`factfold cdc prepare`: a service from an empty database to running connectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

import cdc
import eventstore
from cdc.connect.failures import short_trace
from cdc.errors import InvalidConnector, SourceNotReady
from eventstore.errors import DeclarationError, UnsupportedBackend
from factfold import on_demand
from factfold.cli.definitions import load_aggregate, load_definition, load_module
from factfold.cli.events.store import Schema, Source, TopicPrefix
from factfold.cli.options import Commands, argument, definition, option, setting
from factfold.cli.show import Out, answer, echo, failure_fields
from factfold.stack import LocalStack
from factfold.stack.errors import StackNotUp

if TYPE_CHECKING:
    from sqlalchemy import Engine, MetaData

    from cdc import Connector
    from cdc.connect.status import ConnectorStatus
    from cdc.preparing.steps import Outcome, PreparedStep

app = Commands("Connectors that capture row changes and publish events.")  # which the other modules add to

# Someone is waiting at a terminal; commands that wait for a connector have the patience of their --timeout.
PATIENCE: Final = 10.0

ConnectUrl = Annotated[str | None, setting("--connect-url", "Default: the local stack's worker.")]
SourceUrl = Annotated[str | None, setting("--source-url", "SQLAlchemy URL of the connectors' database.")]
Kafka = Annotated[str | None, setting("--kafka-bootstrap-servers", "Brokers with the connectors' topics.")]
Stack = Annotated[
    str | None,
    setting(
        "--stack", "A local stack. Connectors get its PostgreSQL and its secrets folder in place of those declared."
    ),
]
Timeout = Annotated[float, option("--timeout", "Seconds for each connector.", min=1)]
Names = Annotated[list[str], argument("Names of connectors.")]
MaybeNames = Annotated[list[str] | None, argument("Names of connectors. Default: all.")]
Name = Annotated[str, argument("The connector.")]
Reference = Annotated[
    str, argument("A .toml file, or module:attribute: a connector, several, or a function that gives them.")
]


@dataclass(frozen=True)
class Sides:
    """The two sides of connectors that run: their worker and their database."""

    connect_url: ConnectUrl = None
    source_url: SourceUrl = None

    @contextmanager
    def opened(self, *, patience: float = PATIENCE) -> Iterator[tuple[cdc.ConnectClient, Engine | None]]:
        """Open both; None for a database that is not named."""
        with worker(self.connect_url, patience=patience) as client, maybe_database(self.source_url) as source:
            yield client, source


@dataclass(frozen=True)
class Declared:
    """Connectors as they are declared, and the worker that runs them."""

    reference: Reference
    connect_url: ConnectUrl = None
    stack: Stack = None

    @property
    def connectors(self) -> list[Connector]:
        """The connectors; InvalidConnector."""
        return list(declared(self.reference, self.stack))

    def worker(self, patience: float = PATIENCE) -> cdc.ConnectClient:
        """Make a client of their worker."""
        return worker(self.connect_url, patience=patience, stack=self.stack)


def worker(url: str | None, *, patience: float = PATIENCE, stack: str | None = None) -> cdc.ConnectClient:
    """Make a client of the worker at a URL, or of a local stack's."""
    return cdc.ConnectClient(_address(url, stack), patience=max(PATIENCE, patience))


def _address(url: str | None, stack: str | None) -> str:
    """The address of the worker: the given one, or a local stack's. A stack has no worker but its own."""
    if url is not None and stack is None:
        return url
    try:
        own = LocalStack(stack or "default").info.connect_url
    except StackNotUp as error:
        if stack is not None:
            raise
        raise DeclarationError(
            "no Connect worker is named, and no local stack runs",
            remedy="give --connect-url or FACTFOLD_CONNECT_URL (connect_url in factfold.toml), or factfold stack up",
        ) from error
    if url is not None and url.rstrip("/") != own:
        raise DeclarationError(
            f"the Connect worker that is named is not that of the local stack {stack!r}",
            remedy="give --connect-url (FACTFOLD_CONNECT_URL) or --stack (FACTFOLD_STACK), and not both",
            place=own,
        )
    return own


def maybe_database(url: str | None) -> AbstractContextManager[Engine | None]:
    """Open the connectors' database, if its URL was given; SourceNotReady for a URL that is none."""
    return nullcontext() if url is None else database(url)


def brokers_at(servers: str) -> eventstore.Settings:
    """Return the settings of the environment for other brokers."""
    settings = eventstore.Settings()
    return settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"bootstrap_servers": servers})})


def of_its_own(source: Engine | None, config: Mapping[str, str]) -> tuple[Engine | None, tuple[str, ...]]:
    """Return a database if it is that of a connector with such a configuration, and else a note that it is not."""
    if source is None or (reason := on_demand.not_of(source, config)) is None:
        return source, ()
    return None, (f"its source was not looked into: {reason}",)


@contextmanager
def database(url: str) -> Iterator[Engine]:
    """Open a database; SourceNotReady for a URL that is none."""
    engine = _created(url)
    try:
        yield engine
    finally:
        engine.dispose()


def _created(url: str) -> Engine:
    with suppress(UnsupportedBackend, ValueError):
        return on_demand.engine_for(url)
    # Raised here and not above: its own words may hold the URL, and with it a password.
    raise SourceNotReady(
        "the source's URL cannot be read",
        remedy="write postgresql+psycopg://USER:PASSWORD@HOST:PORT/DATABASE, with @ : / of a password as %40 %3A %2F",
        place="--source-url",
    )


def declared(reference: str, stack: str | None = None) -> Iterable[Connector]:
    """Load what a .toml file declares, or what `module:attribute` names; with a stack, at the stack's addresses."""
    if stack is None:
        return _declared(reference)
    from factfold.stack.connect import in_stack  # takes a fifth of a second, and few commands name a stack

    info = LocalStack(stack).info
    return [in_stack(connector, info) for connector in _declared(reference)]


def _declared(reference: str) -> Iterable[Connector]:
    if reference.endswith(".toml"):
        return cdc.load_connectors(reference)
    definition = _loaded(reference)
    definition = definition() if callable(definition) else definition
    connectors = list(definition) if isinstance(definition, Iterable) else [definition]
    for one in connectors:
        if not callable(getattr(one, "config", None)):
            raise _unloaded(f"{reference!r} gives a {type(one).__name__}, and no connector", reference)
    return connectors


def _loaded(reference: str) -> Any:
    module, colon, attribute = reference.partition(":")
    if not (module and colon and attribute):
        raise _unloaded(f"{reference!r} is neither module:attribute nor a .toml file", reference)
    loaded = load_module(reference, module, what="connector", example="shop.connectors:shop")
    try:
        return getattr(loaded, attribute)
    except AttributeError as error:
        raise _unloaded(f"{reference!r} cannot be loaded: {error}", reference) from error


def _unloaded(message: str, reference: str) -> InvalidConnector:
    remedy = "name a .toml file, or module:attribute as Python imports it from here"
    return InvalidConnector(message, remedy=remedy, place=reference)


def failed_names(client: cdc.ConnectClient) -> list[str]:
    """The connectors with a part that FAILED."""
    return [name for name, (_, status) in client.overview().items() if status.failure is not None]


def restarted(
    client: cdc.ConnectClient, name: str, source: Engine | None, *, timeout: float
) -> tuple[ConnectorStatus, tuple[str, ...]]:
    """Start a connector again, with a look into its source; give its states and notes."""
    own, notes = of_its_own(source, client.config(name))
    return cdc.restart_connector(client, name, source=own, timeout=timeout), notes


def show(status: ConnectorStatus, out: Out, *did: str, notes: Iterable[str] = ()) -> None:
    """Print a connector's states, what was done with it and what was not, and why something FAILED."""
    notes = list(notes)
    below = [*causes_of(status), *(f"note: {note}" for note in notes)]
    out.show(
        asdict(standing(status)) | ({"did": did} if did else {}) | {"notes": notes},
        ["  ".join([status.name, *did, status.summary()]), *(f"    {line}" for line in below)],
    )


@dataclass(frozen=True, slots=True)
class TaskStanding:
    """One task of a connector."""

    id: int
    state: str
    worker: str


@dataclass(frozen=True, slots=True)
class ConnectorStanding:
    """A connector with its tasks, as commands and the console show it; `causes` say why one failed, the root last."""

    name: str
    state: str
    tasks: tuple[TaskStanding, ...]
    causes: tuple[str, ...]


def standing(status: ConnectorStatus) -> ConnectorStanding:
    """What is shown of a connector's states."""
    tasks = tuple(TaskStanding(task.id, task.state, task.worker_id) for task in status.tasks)
    return ConnectorStanding(status.name, status.state, tasks, tuple(causes_of(status)))


def causes_of(status: ConnectorStatus) -> list[str]:
    """The causes of a failure in short, the root last; nothing where nothing FAILED."""
    return list(short_trace(status.failure[1])) if status.failure else []


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
