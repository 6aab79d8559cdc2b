"""Instances that wait, held against the code: each has to reach a step that its version of the code has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from eventstore.backends.sql.database import Database
from eventstore.backends.sql.process_rows import TIMER
from eventstore.backends.sql.store import SqlEventStore
from eventstore.errors import FactfoldError
from eventstore.processes.administration import InstanceStatus, Processes
from eventstore.processes.engine import ProcessEngine
from eventstore.processes.process import Process

_ALL: Final = 1_000_000
_PART: Final = 1000


@dataclass(slots=True)
class Unreached:
    """Instances of a process that cannot go on by the given code.

    Attributes:
        process: The process.
        code: The version of the code that they run by.
        lacks: What the code lacks: its class, this version, a timer, a command, or what a state needs.
        instance: The id of one of them.
        instances: How many there are.
        error: What loading its state raised, None if it is something else.
    """

    process: str
    code: int
    lacks: str
    instance: str
    instances: int = 0
    error: Exception | None = None


def unreached(store: SqlEventStore, processes: Sequence[type[Process]]) -> list[Unreached]:
    """Return what instances that have not ended wait for, and the code does not have. Each cause once.

    Only the state of the last step is loaded. Raises StoreUnavailable or StoreNotPrepared.

    Examples:
        >>> unreached(store, [Fulfilment])
        []
    """
    engine = ProcessEngine(store, processes)
    sent = {name for kind in processes for one in kind.versions.values() for name in one.commands_sent}
    instances = Processes(store).instances(limit=_ALL)
    found: dict[tuple[str, int, str], Unreached] = {}
    loadable: list[InstanceStatus] = []
    for one in instances:
        kind = engine.processes.get(one.process)
        own = None if kind is None else kind.versions.get(one.code)
        if own is None:
            _note(found, one, "its class" if kind is None else f"version {one.code} of its code")
            continue
        loadable.append(one)
        for waits in one.scheduled:
            if waits.name not in (own.reactions.timers if waits.kind == TIMER else sent):
                _note(found, one, f"{waits.kind} {waits.name}")
    for start in range(0, len(loadable), _PART):
        for one, lacks, error in _unloaded(engine, loadable[start : start + _PART], sent):
            _note(found, one, lacks, error)
    return list(found.values())


def _unloaded(
    engine: ProcessEngine, instances: Sequence[InstanceStatus], sent: set[str]
) -> Iterator[tuple[InstanceStatus, str, Exception | None]]:
    """The instances whose state does not load, and compensations that nothing sends. Halves find the one that fails."""
    try:
        with Database(engine.store.engine, engine.store.tables).transaction() as tx:
            loaded = engine.loaded(tx, {one.key: one for one in instances})
    except Exception as error:  # whatever a state's type raises
        if len(instances) == 1:
            cause = error.message if isinstance(error, FactfoldError) else type(error).__name__
            yield instances[0], f"a state that it can read: {cause}", error
            return
        half = len(instances) // 2
        yield from _unloaded(engine, instances[:half], sent)
        yield from _unloaded(engine, instances[half:], sent)
        return
    for one in instances:
        undone = (undoable.undo for undoable in loaded[one.key].standing.undoables)
        yield from ((one, f"command {name}", None) for name in undone if name not in sent)


def _note(
    found: dict[tuple[str, int, str], Unreached], one: InstanceStatus, lacks: str, error: Exception | None = None
) -> None:
    key = (one.process, one.code, lacks)
    found.setdefault(key, Unreached(*key, one.instance, error=error)).instances += 1
