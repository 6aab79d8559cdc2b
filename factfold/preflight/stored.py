"""Stored events, streams, snapshots and waiting processes, held against the code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from eventstore.errors import StoreNotPrepared
from eventstore.schema_check import check_schemas, dropped_fields
from factfold import on_demand
from factfold.cli.events.store import require_current
from factfold.preflight.findings import Checked, Finding, Level, green, red, unknown, yellow

if TYPE_CHECKING:
    from eventstore import Aggregate, SqlEventStore
    from eventstore.inspection.refolding import Failure, Refolding
    from eventstore.schema_registry import RegisteredSchema


def stored(checked: Checked) -> Iterator[Finding]:
    """The tables have this release's version, and the code takes in what is stored."""
    if (store := checked.store) is None:
        yield unknown("event store", "no event store is named", "give --store-url")
        return
    try:
        yield green("migrations", f"the tables are at version {require_current(store).installed}")
    except StoreNotPrepared as error:
        yield Finding.of(Level.RED, "migrations", error)
        yield unknown("events", "the store's tables are not up to date", "migrate a copy, and check it")
        return
    yield from _events(checked, store)
    yield from _processes(checked, store)


def _events(checked: Checked, store: SqlEventStore) -> Iterator[Finding]:
    kinds = {kind.category: kind for kind in checked.definitions.aggregates.values()}
    forms, schemas = on_demand.stored_forms(store), store.schemas()
    events, totals = {form.schema_id: form.events for form in forms}, on_demand.by_category(forms)
    versions = {schema.id: schema.version for schema in schemas}
    result = check_schemas([*kinds.values(), *checked.definitions.processes.values()], schemas)
    for misfit in result.misfits:
        count = events.get(misfit.schema_id, 0)
        of = f"schema {misfit.schema_id}, version {versions[misfit.schema_id]}"
        cause = f"{misfit.problem}, in {count:,} stored events of {of}"
        yield (red if count else yellow)(misfit.place, cause, misfit.remedy, "schema-misfit")
    yield from _dropped(kinds.values(), schemas, events)
    for category in filter(totals.get, result.passed_over):
        cause = f"{totals[category]:,} events, and the code has no aggregate of it"
        yield unknown(f"category {category}", cause, "name its package too, if this service writes it")
    for category, kind in sorted(kinds.items()):
        tell = partial(checked.tell, total=totals[category], step=f"folding {category}", rest="events")
        snapshots = on_demand.snapshots_of(store, category)
        folding = on_demand.refolded(store, kind, snapshots, limit=checked.sample, tell=tell)
        misfits = {misfit.schema_id for misfit in result.misfits}
        yield from _folded(category, folding, misfits)
        unread = misfits | {failure.first.schema_id for failure in folding.failures}
        for form in forms:
            if form.category == category and form.schema_id not in unread:
                yield green(form.type, f"version {versions[form.schema_id]}: {form.events:,} stored events fit")
        read = f"{folding.events:,} of {totals[category]:,} events read"
        yield green(f"category {category}", f"{read}, {len(folding.states):,} streams fold")


def _dropped(
    kinds: Iterable[type[Aggregate]], schemas: Iterable[RegisteredSchema], events: Mapping[int, int]
) -> Iterator[Finding]:
    owners = {name: kind for one in kinds for name, kind in one.stored_types().items()}
    for schema in schemas:
        count, owner = events.get(schema.id), owners.get(schema.name)
        for name in dropped_fields(owner, schema) if owner and count else ():
            cause = f"the code has no such field: {count:,} stored events of version {schema.version} have values of it"
            remedy = f'keep the field, or say that it is meant: upcasters={{{schema.version}: [Drop("{name}")]}}'
            yield yellow(f"{schema.name}.{name}", cause, remedy, "field-removed")


def _folded(category: str, folding: Refolding, misfits: set[int]) -> Iterator[Finding]:
    for failure in folding.failures:
        if failure.folding or failure.first.schema_id not in misfits:
            yield _failure(failure)
    if folding.outdated:
        outdated = f"{len(folding.outdated):,} states are not those that the code folds, such as {folding.outdated[0]}"
        remedy = "raise state_version of the aggregate: former snapshots are then ignored"
        yield red(f"snapshots of {category}", outdated, remedy, "snapshot-outdated")
    if folding.ignored:
        ignored = f"{folding.ignored:,} have another shape and are ignored: their streams are loaded from all events"
        yield yellow(
            f"snapshots of {category}", ignored, "expect slower commands until the next ones", "snapshot-ignored"
        )


def _failure(failure: Failure) -> Finding:
    event, error = failure.first, failure.error
    found, what = Finding.of(Level.RED, "", error), "does not fold" if failure.folding else "cannot be read"
    personal = ", with placeholders for personal values" if failure.personal else ""
    of = f"{failure.events:,} events of version {event.schema_version}"
    cause = f"{of}: {event.stream}@{event.version} {what}: {found.cause}{personal}"
    return (yellow if failure.personal else red)(event.type, cause, found.remedy, found.code)


def _processes(checked: Checked, store: SqlEventStore) -> Iterator[Finding]:
    kinds = sorted(checked.definitions.processes.values(), key=lambda one: one.code_version)
    waiting: dict[tuple[str, int, str], list[str]] = {}
    for one, lacks in on_demand.unreached(store, list({kind.category: kind for kind in kinds}.values())):
        waiting.setdefault((one.process, one.code, lacks), []).append(one.instance)
    for (process, version, lacks), ids in waiting.items():
        cause = f"{len(ids):,} instances wait, such as {ids[0]}, and version {version} of the code lacks {lacks}"
        remedy = "name its package too" if lacks == "its class" else "keep it: earlier=[the former class]"
        yield red(f"process {process}", cause, f"{remedy}, or let them end first", "process-step-missing")
    if not waiting:
        yield green("processes", "every instance that waits reaches a step of the code")
