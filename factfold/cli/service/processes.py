"""`factfold processes`: run, list, show, stats, retry, cancel, migrate."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from eventstore import Restarts, StreamName
from eventstore.processes.errors import ProcessError
from factfold import on_demand
from factfold.cli.brokers import reached_settings
from factfold.cli.completions import completes
from factfold.cli.definitions import load_aggregate, load_class
from factfold.cli.events.store import Database, Json, Schema, Source, existing_store
from factfold.cli.keys import KeyStoreOption, MasterKeysIfAny, named_keys
from factfold.cli.logs import log_to_stderr
from factfold.cli.metrics import LOCAL, MetricsHost, MetricsPort, served_metrics
from factfold.cli.restarts import LIMIT, RestartLimit
from factfold.cli.service.shown_processes import status_as_json, step_as_json
from factfold.cli.shown_values import echo, printable
from factfold.cli.signals import stop_on_signal
from factfold.cli.tracing import Tracing, spans_if
from factfold.cli.views.archive import parse_duration

if TYPE_CHECKING:
    from eventstore import SqlEventStore
    from eventstore.messages import RecordedEvent
    from eventstore.processes import Process
    from eventstore.processes.administration import InstanceStatus

app = typer.Typer(help="Process managers: what runs, what waits, what is stuck.", no_args_is_help=True)

Name = Annotated[str | None, typer.Argument(help="The process's name, such as fulfilment. Default: all.")]
Stream = Annotated[str, typer.Argument(help="The instance's stream, such as fulfilment-o1.", metavar="PROCESS-ID")]
Target = Annotated[
    str,
    typer.Argument(
        help="The process's class, as module:Name.", metavar="MODULE:NAME", autocompletion=completes("process")
    ),
]
Instance = Annotated[str, typer.Argument(help="The instance's id.", metavar="ID")]
InstanceIfAny = Annotated[str | None, typer.Argument(help="The instance's id.", metavar="ID")]
Every = Annotated[bool, typer.Option("--all", help="All instances with a problem.")]
Cause = Annotated[
    str | None, typer.Option("--cause", help="Those with a problem that has this text, as `list` prints it.")
]


@app.callback()
def processes() -> None:
    """Process managers: what runs, what waits, what is stuck."""
    log_to_stderr()


@app.command()
def run(
    targets: Annotated[
        list[str],
        typer.Argument(help="The processes' classes, each as module:Name.", autocompletion=completes("process")),
    ],
    database: Database,
    schema: Schema = None,
    source: Source = None,
    kafka: Annotated[
        bool, typer.Option("--kafka", help="Take events from Kafka's topics, not from the store itself.")
    ] = False,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", help="The topic of another service, as payment=billing.payment. For --kafka."),
    ] = None,
    commands: Annotated[
        list[str] | None,
        typer.Option(
            "--commands",
            help="An aggregate whose scheduled commands are sent too.",
            autocompletion=completes("aggregate"),
        ),
    ] = None,
    master_keys: MasterKeysIfAny = None,
    key_store: KeyStoreOption = None,
    restarts: RestartLimit = LIMIT,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = LOCAL,
    tracing: Tracing = False,
    as_json: Json = False,
) -> None:
    """Deliver events to processes, send their commands and fire their timers, until a signal comes.

    Start it several times to share the work.
    """
    kinds, aggregates = [load_process(target) for target in targets], [load_aggregate(one) for one in commands or ()]
    stop = stop_on_signal()
    settings = reached_settings(without_kafka="processes read the event store: leave out --kafka") if kafka else None
    keys = named_keys(key_store, master_keys)
    with (
        existing_store(database, schema, keys=keys, source=source) as store,
        served_metrics(partial(_metrics, kinds), metrics_port, metrics_host) as metrics,
    ):
        echo(json.dumps({"state": "running"}) if as_json else "running", err=not as_json)
        sys.stdout.flush()
        report = on_demand.run_processes(
            store, kinds, stop=stop, settings=settings, topics=_topics(topics or ()), commands=aggregates,
            restarts=Restarts(limit=restarts), metrics=metrics, spans=spans_if(tracing),
        )  # fmt: skip
    said = f"{report.commands:,} commands sent, {report.timers:,} timers fired, {report.failed:,} failures"
    echo(json.dumps(dataclasses.asdict(report)) if as_json else said)


def _metrics(kinds: Sequence[type[Process]]) -> on_demand.ProcessMetrics:
    return on_demand.ProcessMetrics(" ".join(kind.category for kind in kinds) or "schedule")


@app.command(name="list")
def list_(
    database: Database,
    process: Name = None,
    schema: Schema = None,
    stuck: Annotated[
        str | None, typer.Option("--stuck", help="Only instances with a problem, or idle for so long: 90s, 1h, 2d.")
    ] = None,
    ended: Annotated[bool, typer.Option("--ended", help="Also instances that have ended.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many at most.")] = 1000,
    as_json: Json = False,
) -> None:
    """List instances, those that are idle longest first. Exit code 3 if --stuck finds any."""
    age = None if stuck is None else parse_duration(stuck)
    with existing_store(database, schema) as store:
        instances = _processes(store).instances(process, stuck=age, ended=ended, limit=limit)
    if as_json:
        echo(json.dumps([status_as_json(one) for one in instances]))
    else:
        for one in instances:
            echo(f"{one.process}-{one.instance}  {one.status}, idle for {_age(one.idle)}, waits for {one.waits_for}")
            if one.problem:
                echo(f"  problem: {printable(one.problem)}")
        echo(f"{len(instances):,} {'instance' if len(instances) == 1 else 'instances'}")
    if stuck is not None and instances:
        raise typer.Exit(3)


@app.command()
def show(stream: Stream, database: Database, schema: Schema = None, as_json: Json = False) -> None:
    """Show one instance with its steps: what came, what was decided, the state after it."""
    name, instance = _parts(stream)
    with existing_store(database, schema) as store:
        processes = _processes(store)
        status, steps = processes.show(name, instance), processes.steps(name, instance)
    if as_json:
        echo(json.dumps({**status_as_json(status), "steps": [step_as_json(step) for step in steps]}))
        return
    _tell(status)
    for step in steps:
        _tell_step(step)


@app.command()
def stats(database: Database, process: Name = None, schema: Schema = None, as_json: Json = False) -> None:
    """Count instances by process and status."""
    with existing_store(database, schema) as store:
        counts = _processes(store).stats(process)
    if as_json:
        echo(json.dumps([dataclasses.asdict(one) for one in counts]))
        return
    for one in counts:
        echo(
            f"{one.process}  {one.status}: {one.instances:,}"
            + f", {one.troubled:,} with a problem" * bool(one.troubled)
        )


@app.command()
def retry(
    target: Target,
    database: Database,
    instance: InstanceIfAny = None,
    every: Every = False,
    cause: Cause = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """Repeat what was set aside, or the compensation that failed: of an instance, or of all with a problem.

    Exit code 3 if one of them could not be repeated.
    """
    _require_choice(instance, every=every, cause=cause)
    with _repairing(target, database, schema) as (processes, process):
        chosen = _chosen(processes, process, instance, cause)
        _do_each(partial(processes.retry, process), chosen, alone=instance is not None, as_json=as_json)


@app.command()
def cancel(
    target: Target,
    database: Database,
    instance: InstanceIfAny = None,
    every: Every = False,
    cause: Cause = None,
    schema: Schema = None,
    compensate: Annotated[
        bool, typer.Option("--compensate/--no-compensate", help="Undo what was accepted, or leave it as it is.")
    ] = True,
    as_json: Json = False,
) -> None:
    """End an instance, or all with a problem. Exit code 3 if one of them could not be ended."""
    _require_choice(instance, every=every, cause=cause)
    with _repairing(target, database, schema) as (processes, process):
        chosen = _chosen(processes, process, instance, cause)
        ending = partial(processes.cancel, process, compensate=compensate)
        _do_each(ending, chosen, alone=instance is not None, as_json=as_json)


def _require_choice(instance: str | None, *, every: bool, cause: str | None) -> None:
    if (instance is not None) + every + (cause is not None) != 1:
        raise typer.BadParameter("name one instance, or give --all, or --cause TEXT")


@contextmanager
def _repairing(target: str, database: str, schema: str | None) -> Iterator[tuple[on_demand.Processes, str]]:
    """The instances of one process that can be repaired, and its name."""
    kind = load_process(target)
    with existing_store(database, schema) as store:
        yield _processes(store, kind), kind.category


def _chosen(processes: on_demand.Processes, process: str, instance: str | None, cause: str | None) -> list[str]:
    """The ids of the instances that options mean."""
    if instance is not None:
        return [instance]
    return [one.instance for one in processes.troubled(process, cause=cause or "")]


def _do_each(do: Callable[[str], InstanceStatus], instances: Sequence[str], *, alone: bool, as_json: bool) -> None:
    """Repair instances one after the other. One that fails holds up no other."""
    failed = 0
    for instance in instances:
        try:
            _tell(do(instance), as_json=as_json)
        except ProcessError as error:
            if alone:
                raise
            failed += 1
            echo(f"error: {error}", err=True)
    if not alone:
        echo(f"{len(instances) - failed:,} of {len(instances):,} instances", err=as_json)
    if failed:
        raise typer.Exit(3)


@app.command()
def migrate(
    target: Target, instance: Instance, database: Database, schema: Schema = None, as_json: Json = False
) -> None:
    """Move an instance to the newest version of its class, by replaying its inputs. No command is sent again."""
    with _repairing(target, database, schema) as (processes, process):
        _tell(processes.migrate(process, instance), as_json=as_json)


def _topics(given: Sequence[str]) -> dict[str, str]:
    for one in given:
        if not all(one.partition("=")[::2]):
            raise typer.BadParameter(f"{one!r} names no category and topic: write payment=billing.payment")
    return dict(one.split("=", 1) for one in given)


def load_process(spec: str) -> type[on_demand.Process]:
    """The process that `module:name` names; DeclarationError says which half is wrong."""
    return load_class(spec, on_demand.Process, what="process", example="shop.processes:Fulfilment")


def _processes(store: SqlEventStore, *kinds: type[Process]) -> on_demand.Processes:
    return on_demand.Processes(store, kinds)


def _parts(stream: str) -> tuple[str, str]:
    parsed = StreamName.parse(stream)
    return parsed.category, parsed.id


def _tell(status: InstanceStatus, *, as_json: bool = False) -> None:
    if as_json:
        echo(json.dumps(status_as_json(status)))
        return
    echo(f"{status.process}-{status.instance}  {status.status}, version {status.code} of its code")
    echo(f"  started {status.started:%Y-%m-%d %H:%M:%S} UTC, idle for {_age(status.idle)}")
    echo(f"  waits for {status.waits_for}")
    if status.problem:
        echo(f"  problem: {printable(status.problem)}")


def _tell_step(step: RecordedEvent) -> None:
    data = step.data
    cause = data["cause"]
    echo(f"{step.version:>4}  {cause['time']:%Y-%m-%d %H:%M:%S}  {cause['kind']} {cause['name']} → {data['status']}")
    for sent in data["sent"]:
        echo(f"      sends {sent['command']} to {sent['to']} {printable(sent['arguments'])}")
    for timer in data["timers"]:
        echo(f"      timer {timer['name']}, due {timer['due']:%Y-%m-%d %H:%M:%S} UTC")
    for name in data["cancelled"]:
        echo(f"      takes back timer {name}")
    for text in (data["note"], data["problem"]):
        if text:
            echo(f"      {printable(text)}")
    echo(f"      state {printable(data['state'])}")


def _age(time: timedelta) -> str:
    return str(timedelta(seconds=int(time.total_seconds())))
