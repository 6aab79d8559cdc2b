"""Stored events, streams, snapshots and waiting processes, held against the code."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from eventstore.errors import FactfoldError
from eventstore.schema_check import check_schemas, dropped_fields
from factfold import on_demand
from factfold.preflight.findings import Checked, Finding, Level

if TYPE_CHECKING:
    from eventstore import Aggregate, SqlEventStore
    from eventstore.backends.sql.counting import StoredForm
    from eventstore.inspection.refolding import Failure, Refolding
    from eventstore.schema_registry import RegisteredSchema


def stored(checked: Checked) -> Iterator[Finding]:
    """The tables have this release's version, and the code takes in what is stored."""
    if (store := checked.store) is None:
        yield Finding(Level.UNKNOWN, "event store", "no event store is named", "give --store-url")
        return
    version = store.version()
    if not version.is_current:
        yield Finding(
            Level.RED, "migrations", f"the store's tables have version {version.installed or 'none'}, this release "
            f"needs {version.newest}", "run factfold store migrate before the deployment", "migration-pending",
        )  # fmt: skip
        yield Finding(Level.UNKNOWN, "events", "the store's tables are not up to date", "migrate a copy, and check it")
        return
    yield Finding(Level.GREEN, "migrations", f"the store's tables have version {version.installed}")
    yield from _events(checked, store)
    yield from _processes(checked, store)


def _events(checked: Checked, store: SqlEventStore) -> Iterator[Finding]:
    kinds = {kind.category: kind for kind in checked.definitions.aggregates.values()}
    processes = list(checked.definitions.processes.values())
    forms, schemas = on_demand.stored_forms(store), {schema.id: schema for schema in store.schemas()}
    events = {form.schema_id: form.events for form in forms}
    result = check_schemas([*kinds.values(), *processes], schemas.values())
    for misfit in result.misfits:
        count = events.get(misfit.schema_id, 0)
        cause = f"{misfit.problem}, in {count:,} stored events of schema {misfit.schema_id}"
        yield Finding(Level.RED if count else Level.YELLOW, misfit.place, cause, misfit.remedy, "schema-misfit")
    yield from _dropped(kinds.values(), schemas.values(), events)
    for category in result.passed_over:
        if count := sum(form.events for form in forms if form.category == category):
            yield Finding(
                Level.UNKNOWN, f"category {category}", f"{count:,} events, and the code has no aggregate of it",
                "name its package too, if this service writes it",
            )  # fmt: skip
    own = [form for form in forms if form.category in kinds]
    total, done = _limited(own, checked.sample), 0
    for category, kind in sorted(kinds.items()):
        tell = partial(_tell, checked, f"folding {category}", done, total)
        folding = on_demand.refolded(
            store, kind, on_demand.snapshots_of(store, category), limit=checked.sample, tell=tell
        )
        done += folding.events
        yield from _folded(category, folding, {misfit.schema_id for misfit in result.misfits})
    read = f"{done:,} of {sum(form.events for form in own):,} events of {len(kinds)} categories read"
    yield Finding(Level.GREEN, "events", read)


def _tell(checked: Checked, step: str, before: int, total: int, events: int) -> None:
    checked.tell(before + events, total, step, "events")


def _limited(forms: Iterable[StoredForm], sample: int | None) -> int:
    counts: dict[str, int] = {}
    for form in forms:
        counts[form.category] = counts.get(form.category, 0) + form.events
    return sum(count if sample is None else min(count, sample) for count in counts.values())


def _dropped(
    kinds: Iterable[type[Aggregate]], schemas: Iterable[RegisteredSchema], events: Mapping[int, int]
) -> Iterator[Finding]:
    for schema in schemas:
        for kind in kinds:
            if (owner := kind.stored_types().get(schema.name)) is None or not events.get(schema.id):
                continue
            for name in dropped_fields(owner, schema):
                yield Finding(
                    Level.YELLOW, f"{schema.name}.{name}", f"the code has no such field: its values in "
                    f"{events[schema.id]:,} stored events of schema {schema.id} are not read any more",
                    f'keep the field, or say that it is meant: upcasters={{{schema.version}: [Drop("{name}")]}}',
                    "field-removed",
                )  # fmt: skip


def _folded(category: str, folding: Refolding, misfits: set[int]) -> Iterator[Finding]:
    for failure in folding.failures:
        if failure.folding or failure.first.schema_id not in misfits:
            yield _failure(failure)
    if folding.outdated:
        outdated = f"{len(folding.outdated):,} states are not those that the code folds, such as {folding.outdated[0]}"
        remedy = "raise state_version of the aggregate: former snapshots are then ignored"
        yield Finding(Level.RED, f"snapshots of {category}", outdated, remedy, "snapshot-outdated")
    if folding.ignored:
        ignored = f"{folding.ignored:,} have another shape and are ignored: these streams are loaded from all events"
        remedy = "expect slower commands until the next snapshots"
        yield Finding(Level.YELLOW, f"snapshots of {category}", ignored, remedy, "snapshot-ignored")
    yield Finding(Level.GREEN, f"streams of {category}", f"{len(folding.states):,} streams fold")


def _failure(failure: Failure) -> Finding:
    event, error = failure.first, failure.error
    what = "does not fold" if failure.folding else "cannot be read"
    found = Finding.of(Level.RED, "", error)
    at = f" (at {_place(error)})" if _place(error) else ""
    cause = f"{failure.events:,} events: {event.stream}@{event.version} {what}: {found.cause}{at}"
    if failure.personal:
        return Finding(
            Level.YELLOW, event.type, f"{cause}, with placeholders for personal values", found.remedy, found.code
        )
    return Finding(Level.RED, event.type, cause, found.remedy, found.code)


def _place(error: Exception) -> str:
    """Where the service's code raised; an error of ours names its place itself."""
    if isinstance(error, FactfoldError):
        return error.place or ""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def _processes(checked: Checked, store: SqlEventStore) -> Iterator[Finding]:
    newest = {}
    for kind in sorted(checked.definitions.processes.values(), key=lambda one: one.code_version):
        newest[kind.category] = kind
    missing = on_demand.unreached(store, list(newest.values()))
    for one in missing:
        yield Finding(
            Level.RED, f"process {one.process}", f"{one.instances:,} instances wait, such as {one.instance}, and "
            f"version {one.code} of the code lacks {one.lacks}",
            "keep what they wait for: earlier=[the former class], or let them end first", "process-step-missing",
        )  # fmt: skip
    if not missing:
        yield Finding(Level.GREEN, "processes", "every instance that waits reaches a step of the code")
