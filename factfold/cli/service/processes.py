"""`factfold processes`: run, list, show, stats, retry, cancel, migrate.

`factfold schedule`: list commands that are sent later, retry and cancel those scheduled without a process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from eventstore import Restarts
from eventstore.identifiers import StreamName
from eventstore.processes.errors import ProcessError
from factfold import on_demand
from factfold.cli.definitions import load_aggregate, load_class
from factfold.cli.events.store import Source, Store
from factfold.cli.keys import NamedKeys
from factfold.cli.options import Commands, argument, definition, option, parse_duration
from factfold.cli.running import Running, Tracing, reached_settings, spans_if, stop_on_signal
from factfold.cli.show import Out, answer, as_json, echo, printable

if TYPE_CHECKING:
    from eventstore.backends.sql.process_rows import Scheduled
    from eventstore.processes.administration import InstanceStatus, ProcessCount
    from eventstore.store import RecordedEvent

schedule = Commands("Commands that are sent later: list, retry, cancel.")

CommandId = Annotated[UUID, argument("The command's id, as `list` shows it.", "ID")]


@schedule.command("list")
def list_scheduled(
    store: Store,
    out: Out,
    failed: Annotated[bool, option("--failed", "Only commands that failed or were set aside.")] = False,
    limit: Annotated[int, option("--limit", "How many at most.", min=1)] = 1000,
) -> None:
    """List scheduled commands and those of processes, set aside first. Exit code 3 if --failed finds any."""
    with store.opened() as opened:
        commands = on_demand.Schedule(opened).pending(failed=failed, processes=True, limit=limit)
    out.show(commands, _scheduled_lines(commands))
    answer(not (failed and commands))


@schedule.command("retry")
def retry_scheduled(command_id: CommandId, store: Store, out: Out) -> None:
    """Send a command that failed or was set aside at once. Exit code 1 if there is none of this id."""
    with store.opened() as opened:
        _conclude(on_demand.Schedule(opened).retry(command_id), f"{command_id} is due now", out)


@schedule.command("cancel")
def cancel_scheduled(command_id: CommandId, store: Store, out: Out) -> None:
    """Delete a command that is still to be sent. Exit code 1 if there is none of this id."""
    with store.opened() as opened:
        _conclude(on_demand.Schedule(opened).cancel(command_id), f"{command_id} is cancelled", out)


def _scheduled_lines(commands: Sequence[Scheduled]) -> Iterator[str]:
    for one in commands:
        when = "set aside" if one.due is None else f"due {one.due:%Y-%m-%d %H:%M:%S} UTC"
        sender = "" if one.key is None else printable(f", sent by {one.key[0]} {one.key[1]}")
        yield f"{one.id}  {when}  {one.name} for {printable(one.stream)} {printable(one.arguments)}{sender}"
        if one.error:
            yield f"  failed, attempts: {one.attempts}: {printable(one.error)}"
    yield f"{len(commands):,} {'command' if len(commands) == 1 else 'commands'}"


def _conclude(done: bool, said: str, out: Out) -> None:
    if out.as_json or done:
        out.show({"done": done}, said)
    else:
        echo("there is no such command: it was sent, or cancelled before, or did not fail", err=True)
        echo("  remedy: list them. What a process sent: factfold processes retry or cancel", err=True)
    if not done:
        raise typer.Exit(1)


app = Commands("Process managers: what runs, what waits, what is stuck.")

Name = Annotated[str | None, argument("The process's name, such as fulfilment. Default: all.")]
Target = Annotated[str, definition("The process's class, as module:Name.", "process", metavar="MODULE:NAME")]


@dataclass(frozen=True)
class Repaired:
    """The instances of one process that a command repairs: one of them, all with a problem, or some of these."""

    target: Target
    store: Store
    instance: Annotated[str | None, argument("The instance's id.", "ID")] = None
    every: Annotated[bool, option("--all", "All instances with a problem.")] = False
    cause: Annotated[str | None, option("--cause", "Those with a problem that has this text, as `list` prints it.")] = (
        None
    )

    def each(self, do: Callable[[on_demand.Processes, str, str], InstanceStatus], out: Out) -> None:
        """Repair instances one after the other. One that fails holds up no other."""
        if (self.instance is not None) + self.every + (self.cause is not None) != 1:
            raise typer.BadParameter("name one instance, or give --all, or --cause TEXT")
        with _repairing(self.target, self.store) as (processes, process):
            if self.instance is not None:
                _tell(do(processes, process, self.instance), out)
                return
            instances, failed = processes.troubled(process, cause=self.cause or ""), 0
            for one in instances:
                try:
                    _tell(do(processes, process, one.instance), out)
                except ProcessError as error:
                    failed += 1
                    echo(f"error: {error}", err=True)
        echo(f"{len(instances) - failed:,} of {len(instances):,} instances", err=out.as_json)
        answer(not failed)


@app.command()
def run(
    targets: Annotated[list[str], definition("The processes' classes, each as module:Name.", "process")],
    store: Store,
    named: NamedKeys,
    running: Running,
    out: Out,
    source: Source = None,
    kafka: Annotated[bool, option("--kafka", "Take events from Kafka's topics, not from the store itself.")] = False,
    topics: Annotated[
        list[str] | None, option("--topic", "The topic of another service, as payment=billing.payment. For --kafka.")
    ] = None,
    commands: Annotated[
        list[str] | None,
        definition("An aggregate whose scheduled commands are sent too.", "aggregate", name="--commands"),
    ] = None,
    tracing: Tracing = False,
) -> None:
    """Deliver events to processes, send their commands and fire their timers, until a signal comes.

    Start it several times to share the work.
    """
    kinds, aggregates = [load_process(target) for target in targets], [load_aggregate(one) for one in commands or ()]
    stop = stop_on_signal()
    settings = reached_settings(without_kafka="processes read the event store: leave out --kafka") if kafka else None
    name = " ".join(kind.category for kind in kinds) or "schedule"
    with (
        store.opened(named.keys, source=source) as opened,
        running.metrics(lambda: on_demand.ProcessMetrics(name)) as metrics,
    ):
        out.state("running")
        report = on_demand.run_processes(
            opened, kinds, stop=stop, settings=settings, topics=_topics(topics or ()), commands=aggregates,
            restarts=Restarts(limit=running.restarts), metrics=metrics, spans=spans_if(tracing),
        )  # fmt: skip
    said = f"{report.commands:,} commands sent, {report.timers:,} timers fired, {report.failed:,} failures"
    out.show(report, said)


@app.command("list")
def list_(
    store: Store,
    out: Out,
    process: Name = None,
    stuck: Annotated[
        str | None, option("--stuck", "Only instances with a problem, or idle for so long: 90s, 1h, 2d.")
    ] = None,
    ended: Annotated[bool, option("--ended", "Also instances that have ended.")] = False,
    limit: Annotated[int, option("--limit", "How many at most.", min=1)] = 1000,
) -> None:
    """List instances, those that are idle longest first. Exit code 3 if --stuck finds any."""
    age = None if stuck is None else parse_duration(stuck)
    with store.opened() as opened:
        instances = on_demand.Processes(opened, ()).instances(process, stuck=age, ended=ended, limit=limit)
    out.show([status_as_json(one) for one in instances], _instance_lines(instances))
    answer(stuck is None or not instances)


def _instance_lines(instances: Sequence[InstanceStatus]) -> Iterator[str]:
    for one in instances:
        yield f"{one.process}-{one.instance}  {one.status}, idle for {_age(one.idle)}, waits for {one.waits_for}"
        if one.problem:
            yield f"  problem: {printable(one.problem)}"
    yield f"{len(instances):,} {'instance' if len(instances) == 1 else 'instances'}"


@app.command()
def show(
    stream: Annotated[str, argument("The instance's stream, such as fulfilment-o1.", "PROCESS-ID")],
    store: Store,
    out: Out,
) -> None:
    """Show one instance with its steps: what came, what was decided, the state after it."""
    named = StreamName.parse(stream)
    with store.opened() as opened:
        processes = on_demand.Processes(opened, ())
        status, steps = processes.show(named.category, named.id), processes.steps(named.category, named.id)
    fields = {**status_as_json(status), "steps": [step_as_json(step) for step in steps]}
    out.show(fields, [*_status_lines(status), *(line for step in steps for line in _step_lines(step))])


@app.command()
def stats(store: Store, out: Out, process: Name = None) -> None:
    """Count instances by process and status."""
    with store.opened() as opened:
        counts = on_demand.Processes(opened, ()).stats(process)
    out.show(counts, map(_count_line, counts))


def _count_line(one: ProcessCount) -> str:
    troubled = f", {one.troubled:,} with a problem" * bool(one.troubled)
    return f"{one.process}  {one.status}: {one.instances:,}{troubled}"


@app.command()
def retry(repaired: Repaired, out: Out) -> None:
    """Repeat what was set aside, or the compensation that failed: of an instance, or of all with a problem.

    Exit code 3 if one of them could not be repeated.
    """
    repaired.each(lambda processes, process, one: processes.retry(process, one), out)


@app.command()
def cancel(
    repaired: Repaired,
    out: Out,
    compensate: Annotated[
        bool, option("--compensate/--no-compensate", "Undo what was accepted, or leave it as it is.")
    ] = True,
) -> None:
    """End an instance, or all with a problem. Exit code 3 if one of them could not be ended."""
    repaired.each(lambda processes, process, one: processes.cancel(process, one, compensate=compensate), out)


@app.command()
def migrate(
    target: Target, instance: Annotated[str, argument("The instance's id.", "ID")], store: Store,
    out: Out,
) -> None:  # fmt: skip
    """Move an instance to the newest version of its class, by replaying its inputs. No command is sent again."""
    with _repairing(target, store) as (processes, process):
        _tell(processes.migrate(process, instance), out)


@contextmanager
def _repairing(target: str, store: Store) -> Iterator[tuple[on_demand.Processes, str]]:
    """The instances of one process that can be repaired, and its name."""
    kind = load_process(target)
    with store.opened() as opened:
        yield on_demand.Processes(opened, [kind]), kind.category


def _topics(given: Sequence[str]) -> dict[str, str]:
    for one in given:
        if not all(one.partition("=")[::2]):
            raise typer.BadParameter(f"{one!r} names no category and topic: write payment=billing.payment")
    return dict(one.split("=", 1) for one in given)


def load_process(spec: str) -> type[on_demand.Process]:
    """The process that `module:name` names; DeclarationError says which half is wrong."""
    return load_class(spec, on_demand.Process, what="process", example="shop.processes:Fulfilment")


def _tell(status: InstanceStatus, out: Out) -> None:
    out.show(status_as_json(status), _status_lines(status))


def _status_lines(status: InstanceStatus) -> Iterator[str]:
    yield f"{status.process}-{status.instance}  {status.status}, version {status.code} of its code"
    yield f"  started {status.started:%Y-%m-%d %H:%M:%S} UTC, idle for {_age(status.idle)}"
    yield f"  waits for {status.waits_for}"
    if status.problem:
        yield f"  problem: {printable(status.problem)}"


def _step_lines(step: RecordedEvent) -> Iterator[str]:
    data = step.data
    cause = data["cause"]
    yield f"{step.version:>4}  {cause['time']:%Y-%m-%d %H:%M:%S}  {cause['kind']} {cause['name']} → {data['status']}"
    for sent in data["sent"]:
        yield f"      sends {sent['command']} to {sent['to']} {printable(sent['arguments'])}"
    for timer in data["timers"]:
        yield f"      timer {timer['name']}, due {timer['due']:%Y-%m-%d %H:%M:%S} UTC"
    for name in data["cancelled"]:
        yield f"      takes back timer {name}"
    for text in (data["note"], data["problem"]):
        if text:
            yield f"      {printable(text)}"
    yield f"      state {printable(data['state'])}"


def _age(time: timedelta) -> str:
    return str(timedelta(seconds=int(time.total_seconds())))


def status_as_json(status: InstanceStatus) -> dict[str, Any]:
    """An instance as it stands."""
    return {**as_json(status), "idle": status.idle.total_seconds()}


def step_as_json(step: RecordedEvent) -> dict[str, Any]:
    """What came, what was decided, the state after it."""
    fields = {"version": step.version, "time": step.time, **step.data, "state": json.loads(step.data["state"])}
    plain: dict[str, Any] = as_json(fields)
    return plain
