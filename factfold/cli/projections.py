"""`factfold projections`: rebuild, run, verify, status."""

from __future__ import annotations

import dataclasses
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventstore.errors import DeclarationError
from factfold.cli.definitions import load_definition
from factfold.cli.keys import KeysUrl, MasterKeysIfAny, open_keys
from factfold.cli.signals import stop_on_signal

if TYPE_CHECKING:
    from projections import Environment, ProjectionGroup
    from projections.spark.incremental import BatchReport

app = typer.Typer(help="Views: build them from the log, keep them up to date, prove them.", no_args_is_help=True)

Group = Annotated[str, typer.Argument(help="The projection group, as module:name.", metavar="MODULE:GROUP")]
Views = Annotated[
    str,
    typer.Option(
        "--views-url",
        envvar="FACTFOLD_VIEWS_URL",
        help="SQLAlchemy URL of the views' database; sqlite:///shop.db holds everything and needs no Kafka.",
    ),
]
Memory = Annotated[str, typer.Option("--memory", help="Heap of the Spark driver.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Archived = Annotated[
    str | None,
    typer.Option(
        "--archive",
        envvar="FACTFOLD_ARCHIVE",
        help="Archive of the topics (factfold archive): what it holds is read from there.",
    ),
]


@app.command()
def rebuild(
    group: Group,
    views_url: Views,
    memory: Memory = "2g",
    master_keys: MasterKeysIfAny = None,
    keys_url: KeysUrl = None,
    archive: Archived = None,
    as_json: Json = False,
) -> None:
    """Build the group's views from the whole log; the present ones serve until the new ones are complete."""
    from projections import rebuild as build

    definition = load_group(group)
    with _environment(views_url, memory, master_keys, keys_url, archive) as environment, _steps(definition) as announce:
        report = build(environment, definition, announce=announce)
    summary = dataclasses.asdict(report) | {"records_per_second": round(report.records_per_second)}
    if as_json:
        _print(summary)
    else:
        rows = ", ".join(f"{view.name} {report.rows[view.name]:,} rows" for view in definition.views)
        typer.echo(f"generation {report.generation}: {rows}; {report.records_per_second:,.0f} records/s")


@app.command()
def run(
    group: Group,
    views_url: Views,
    memory: Memory = "2g",
    master_keys: MasterKeysIfAny = None,
    keys_url: KeysUrl = None,
    archive: Archived = None,
    once: Annotated[bool, typer.Option("--once", help="Stop when the view has caught up.")] = False,
    as_json: Json = False,
) -> None:
    """Keep the group's views up to date until a signal comes; builds them first where there are none."""
    from projections import NoServingGeneration, open_runner
    from projections import rebuild as build

    definition = load_group(group)
    stop = stop_on_signal()
    with _environment(views_url, memory, master_keys, keys_url, archive) as environment:
        try:
            with open_runner(environment, definition) as runner:
                _follow(runner, stop, once=once, as_json=as_json)
                return
        except NoServingGeneration:
            with _steps(definition) as announce:
                build(environment, definition, announce=announce)
        with open_runner(environment, definition) as runner:
            _follow(runner, stop, once=once, as_json=as_json)


def _follow(runner: Any, stop: threading.Event, *, once: bool, as_json: bool) -> None:
    typer.echo("following" if not as_json else json.dumps({"state": "following"}), err=not as_json)
    sys.stdout.flush()
    if once:
        for report in runner.catch_up():
            _tell_batch(report, as_json=as_json)
    else:
        runner.run(stop=stop, on_batch=lambda report: _tell_batch(report, as_json=as_json))


def _tell_batch(report: BatchReport, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(report)))
    else:
        seconds = sum(report.seconds.values())
        typer.echo(
            f"{report.records} records: {report.upserts} rows written, {report.retractions} retracted, {seconds:.2f} s"
        )
    sys.stdout.flush()


@app.command()
def verify(
    group: Group,
    views_url: Views,
    memory: Memory = "2g",
    master_keys: MasterKeysIfAny = None,
    keys_url: KeysUrl = None,
    archive: Archived = None,
    as_json: Json = False,
) -> None:
    """Compare each view with a recomputation from the log; exit code 1 where a row differs."""
    from projections import verify as compare

    definition = load_group(group)
    with _environment(views_url, memory, master_keys, keys_url, archive) as environment:
        verdicts = compare(environment, definition)
    if as_json:
        _print({name: dataclasses.asdict(v) | {"equal": v.equal} for name, v in verdicts.items()})
    for name, verdict in () if as_json else verdicts.items():
        outcome = "equal" if verdict.equal else f"DIFFERS at keys {', '.join(map(str, verdict.differing_keys))}"
        typer.echo(f"{name}: {verdict.rows:,} rows, recomputed {verdict.recomputed_rows:,}: {outcome}")
    if not all(verdict.equal for verdict in verdicts.values()):
        raise typer.Exit(1)


@app.command()
def status(views_url: Views, as_json: Json = False) -> None:
    """Show every group's generations and how far they have come."""
    from projections.tablestore.opening import open_table_store

    store = open_table_store(views_url)
    found = store.generations()
    store.close()
    if as_json:
        _print(found)
    for row in () if as_json else found:
        offsets = sum(o for parts in (row["progress"] or {}).values() for o in parts.values())
        typer.echo(f"{row['group']} generation {row['generation']}: {row['status']}, {offsets:,} offsets applied")


def load_group(spec: str) -> ProjectionGroup:
    """The group that `module:name` names; DeclarationError says which half is wrong."""
    from projections import ProjectionGroup

    return load_definition(spec, ProjectionGroup, what="projection group", example="sample_app.views:shop_views")


@contextmanager
def _environment(
    views_url: str, memory: str, master_keys: str | None, keys_url: str | None, archive: str | None = None
) -> Iterator[Environment]:
    from eventstore import Settings
    from factfold.stack import delta_jars, spark_jars
    from projections import Environment
    from projections.tablestore.opening import sqlite_path

    embedded = sqlite_path(views_url)
    if embedded and archive is not None:
        raise DeclarationError(
            "an archive is of Kafka's topics, and these views are read from an event store in their own file",
            remedy="leave --archive (FACTFOLD_ARCHIVE) away, or give the views a PostgreSQL database",
            place=embedded,
        )
    with open_keys(master_keys, keys_url or (views_url if embedded else None)) as keys:
        if embedded:
            environment = Environment.embedded(embedded, jars=spark_jars(), memory=memory, keys=keys)
        else:
            jars = spark_jars() if archive is None else [*spark_jars(), *delta_jars()]
            environment = Environment.open(
                Settings(), views_url=views_url, jars=jars, memory=memory, keys=keys, archive=archive
            )
        with environment:
            yield environment


@contextmanager
def _steps(group: ProjectionGroup) -> Iterator[Any]:
    """Show the step at hand while a rebuild runs."""
    from rich.console import Console

    with Console(stderr=True).status(f"{group.name}: starting") as shown:
        yield lambda step: shown.update(f"{group.name}: {step}")


def _print(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, default=str))
