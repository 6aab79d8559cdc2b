"""Instances that wait, held against the code: each has to reach a step that its version of the code has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from eventstore.backends.sql.database import Database
from eventstore.backends.sql.process_rows import TIMER
from eventstore.backends.sql.store import SqlEventStore
from eventstore.errors import FactfoldError
from eventstore.processes.administration import InstanceStatus, Processes
from eventstore.processes.engine import ProcessEngine
from eventstore.processes.process import TIMES_OUT, Process

_ALL: Final = 1_000_000
_PART: Final = 1000


def unreached(store: SqlEventStore, processes: Sequence[type[Process]]) -> Iterator[tuple[InstanceStatus, str]]:
    """Yield instances that have not ended with what the code lacks: a class, version, timer, command, or state's type.

    Only the state of the last step is loaded. Raises StoreUnavailable or StoreNotPrepared.

    Examples:
        >>> list(unreached(store, [Fulfilment]))
        []
    """
    engine, loadable = ProcessEngine(store, processes), list[InstanceStatus]()
    sent = {name for kind in processes for one in kind.versions.values() for name in one.commands_sent}
    for one in Processes(store).instances(limit=_ALL):
        kind = engine.processes.get(one.process)
        own = None if kind is None else kind.versions.get(one.code)
        if own is None:
            yield one, "its class" if kind is None else f"version {one.code} of its code"
            continue
        loadable.append(one)
        for waits in one.scheduled:
            if not (own.reactions.get(TIMES_OUT, waits.name) if waits.kind == TIMER else waits.name in sent):
                yield one, f"{waits.kind} {waits.name}"
    for start in range(0, len(loadable), _PART):
        yield from _unloaded(engine, loadable[start : start + _PART], sent)


def _unloaded(
    engine: ProcessEngine, instances: Sequence[InstanceStatus], sent: set[str]
) -> Iterator[tuple[InstanceStatus, str]]:
    """The instances whose state does not load, and compensations that nothing sends. Halves find the one that fails."""
    try:
        with Database(engine.store.engine, engine.store.tables).transaction() as tx:
            loaded = engine.loaded(tx, {one.key: one for one in instances})
    except Exception as error:  # whatever a state's type raises
        if len(instances) == 1:
            cause = error.message if isinstance(error, FactfoldError) else type(error).__name__
            yield instances[0], f"a state that it can read: {cause}"
            return
        half = len(instances) // 2
        for part in (instances[:half], instances[half:]):
            yield from _unloaded(engine, part, sent)
        return
    for one in instances:
        undone = {undoable.undo for undoable in loaded[one.key].standing.undoables}
        yield from ((one, f"command {name}") for name in sorted(undone - sent))
