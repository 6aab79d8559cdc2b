"""View: freshness, rows and why one of them is so; generations, a rebuild's progress, cut over and roll back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cdc.errors import UndecodableChange
from eventstore.delivery.source import MASK
from eventstore.errors import NotFound
from eventstore.topics import partition_of
from factfold import on_demand
from factfold.console.jobs import JobState
from factfold.console.page import (
    Action,
    Figure,
    Outcome,
    Page,
    Query,
    chosen,
    declared,
    figures,
    required,
    whole_number,
)
from factfold.console.pages.standing import GROUPS, GroupState, declared_groups
from factfold.console.parts import Part, Problem
from factfold.console.sources import Clients, Look, Reading, Sources
from projections.declaring.tables import ChangelogTable
from projections.declaring.views import with_noted
from projections.stores.compared import key_decoder, key_text

if TYPE_CHECKING:
    from projections import ProjectionGroup
    from projections.declaring.views import View
    from projections.stores.behind_rows import SourceRow


@dataclass(frozen=True, slots=True)
class ShownRows:
    """The first rows of a view, the values of its personal columns masked.

    `total` counts up to a bound; `more` says that the view has more.
    """

    columns: tuple[str, ...]
    key: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    total: int
    more: bool
    masked: bool


@dataclass(frozen=True, slots=True)
class Why:
    """One row behind a row of a view, personal values masked.

    `place` is that of the record that set it last, and the command `show` prints the record.
    """

    table: str
    reached: str
    values: Mapping[str, Any]
    deleted: bool
    stream: str | None
    place: str | None = None
    show: str | None = None


def read_rows(clients: Clients, group: str, generation: int, view: str) -> ShownRows:
    """Return the first rows of a view."""
    result = on_demand.view_rows(clients.views, group, generation, view)
    _, definition = clients.definitions.group(group) or (None, None)
    key = next((one.key for one in definition.all_views if one.name == view), ()) if definition else ()
    hidden = set(result.personal) - set(key)
    rows = tuple(
        tuple(MASK if column in hidden else value for column, value in zip(result.columns, row, strict=True))
        for row in result.rows
    )
    return ShownRows(result.columns, key, rows, result.total, result.total >= on_demand.COUNTED, bool(hidden))


def read_query(clients: Clients, group: str, generation: int, views: tuple[str, ...], text: str) -> ShownRows:
    """Return rows of a query over views of a generation. Raises ProjectionError."""
    result = on_demand.query_rows(clients.views, group, generation, text, views=views)
    rows = tuple(result.rows)
    return ShownRows(result.columns, (), rows, result.total, result.total > len(rows), masked=False)


def read_why(clients: Clients, group: str, generation: int, view: str, *key: tuple[str, str]) -> tuple[Why, ...]:
    """Return what a row of a view was made of. Raises NotFound if the console does not know its group's definition."""
    _, definition = declared(clients.definitions.group(group), f"group {group!r}", place=group)
    rows = on_demand.rows_behind(clients.views, definition, generation, view, dict(key))
    return tuple(_why(clients, definition, row) for row in rows)


def read_stages(clients: Clients, group: str, view: str) -> tuple[str, ...]:
    """Return the drawing of a view's stages. Raises NotFound if the console does not know its group's definition."""
    _, definition = declared(clients.definitions.group(group), f"group {group!r}", place=group)
    return tuple(on_demand.drawn(on_demand.explain(clients.views, definition, view)))


def _why(clients: Clients, group: ProjectionGroup, row: SourceRow) -> Why:
    said = (row.table, row.reached, row.shown, row.deleted, row.stream)
    if row.topic is None or row.offset is None:
        return Why(*said)
    partition = _partition(clients, group, row)
    place = f"{row.topic}[{'?' if partition is None else partition}]@{row.offset}"
    show = f"factfold events show '{partition}@{row.offset}' --topic {row.topic}" if clients.places.kafka else None
    return Why(*said, place, None if partition is None else show)


def _partition(clients: Clients, group: ProjectionGroup, row: SourceRow) -> int | None:
    """The partition of a row's record: on SQLite the only one, of an event that of its stream.

    The partition of a change is the connector's choice: the records of its offset are compared with the row's key.
    """
    if not clients.places.kafka:
        return 0
    assert row.topic is not None  # noqa: S101 - a view's row has no record
    if row.stream is not None:
        return partition_of(row.stream, clients.offsets.partitions([row.topic])[row.topic])
    return _partition_of_change(clients, group, row, row.topic)


def _partition_of_change(clients: Clients, group: ProjectionGroup, row: SourceRow, topic: str) -> int | None:
    table = group.names.get(row.table)
    if not isinstance(table, ChangelogTable) or row.offset is None:
        return None
    decode, own = key_decoder(table), tuple(key_text(row.values[column]) for column in table.key)
    with on_demand.TopicLog(topic, clients.settings) as log:
        for record in log.records_at(row.offset):
            with suppress(UndecodableChange):
                if record.key is not None and decode(record.key, record.place) == own:
                    return record.partition
    return None  # compacted since, or a key in Avro


ROWS: Final = Reading(read_rows)
QUERY: Final = Reading(read_query)
WHY: Final = Reading(read_why)
STAGES: Final = Reading(read_stages)


KEY: Final = "key."
"""What the parameters begin with that give the key of a row: `key.order_id=o1`."""


@dataclass(frozen=True, slots=True)
class ViewLine:
    """A view in the list of all."""

    group: str
    view: str
    serving: int | None
    rows_wait: int | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Declared:
    """What the definition of a view says: its key, its tables with their topics, and the references between them.

    `inferred` says that the references are not known before a rebuild has planned the view.
    """

    target: str
    version: int
    key: tuple[str, ...]
    by: tuple[str, ...]
    tables: Mapping[str, str]
    references: tuple[str, ...]
    inferred: bool
    place: str
    changed: bool | None


@dataclass(frozen=True, slots=True)
class Rebuilding:
    """How far a generation is built: tables and views that are loaded, of those that there are."""

    generation: int
    loaded: tuple[str, ...]
    total: int | None
    holder: str | None


@dataclass(frozen=True, slots=True)
class Detail:
    """One view of one group."""

    group: str
    view: str | None
    generations: Sequence[Mapping[str, Any]]
    seconds: float | None
    figures: tuple[Figure, ...]
    declared: Declared | None
    stages: Part[tuple[str, ...]] | None
    rebuilding: Rebuilding | None
    rows: Part[ShownRows] | None
    query: Part[ShownRows] | None
    key: Mapping[str, str]
    why: Part[tuple[Why, ...]] | None
    moment: datetime
    jobs: tuple[JobState, ...]


@dataclass(frozen=True, slots=True)
class Views:
    """Every view, and the chosen one; what could not be looked at."""

    views: tuple[ViewLine, ...]
    detail: Detail | None
    problem: Problem | None


def views(look: Look, query: Query) -> Views:
    """List the views, and look at the one that the query names. Raises NotFound for one that does not exist."""
    part = look.part(GROUPS)
    groups = part.value if part.value is not None else declared_groups(look.definitions)
    lines = tuple(_line(group, view) for group in groups for view in group.views)
    name = query.get("group")
    if name is None:
        return Views(lines, None, part.problem)
    group = chosen(groups, name, "there is no projection group", by=lambda one: one.name)
    return Views(lines, _detail(look, group, query), part.problem)


def _line(group: GroupState, view: str) -> ViewLine:
    row: Mapping[str, Any] = group.serving or {}
    lag = row.get("lag")
    waits = None if lag is None else sum(lag.values())
    return ViewLine(group.name, view, row.get("generation"), waits, row.get("lag_seconds"))


def _detail(look: Look, group: GroupState, query: Query) -> Detail:
    view = query.get("view") or (group.views[0] if len(group.views) == 1 else None)
    if view is not None and view not in _known(look, group):
        raise NotFound(f"group {group.name!r} has no view {view[:80]!r}", remedy="choose one of the list")
    serving, text = group.serving, query.get("sql", "").strip()
    key = {name.removeprefix(KEY): value for name, value in query.items() if name.startswith(KEY)}
    rows, why = (None, None) if view is None or serving is None else _of_rows(look, group.name, serving, view, key)
    known = view is not None and serving is not None and look.definitions.group(group.name) is not None
    return Detail(
        group=group.name, view=view, generations=group.generations,
        seconds=serving["lag_seconds"] if serving else None, figures=figures(look, "group", group.name),
        declared=_declared(look, group, view),
        stages=look.part(STAGES.of(group.name, view)) if known else None,
        rebuilding=_rebuilding(look, group), rows=rows, key=key, why=why,
        query=look.part(QUERY.of(group.name, serving["generation"], group.views, text)) if text and serving else None,
        moment=datetime.now(UTC).replace(microsecond=0, tzinfo=None) - timedelta(hours=whole_number(query, "ago") or 0),
        jobs=look.sources.jobs.about(_about(group.name)),
    )  # fmt: skip


def _known(look: Look, group: GroupState) -> set[str]:
    """The views that can be shown, those that only other views read included."""
    declared_group = look.definitions.group(group.name)
    return {*group.views, *(view.name for view in (declared_group[1].all_views if declared_group else ()))}


def _of_rows(
    look: Look, group: str, serving: Mapping[str, Any], view: str, key: Mapping[str, str]
) -> tuple[Part[ShownRows], Part[tuple[Why, ...]] | None]:
    named = (group, serving["generation"], view)
    rows, why = ROWS.of(*named), WHY.of(*named, *key.items())
    look.start(rows, *([why] if key else []))
    return look.part(rows), look.part(why) if key else None


def _declared(look: Look, group: GroupState, view: str | None) -> Declared | None:
    declared_group = look.definitions.group(group.name)
    if declared_group is None:
        return None
    target, projections = declared_group
    definition = next((one for one in projections.all_views if one.name == view), None)
    if definition is None:
        return None
    known = with_noted(definition, (group.serving or {}).get("references", {}))
    references = tuple(map(str, known.references)) if known.references_are_known else ()
    return Declared(
        target=target, version=projections.version, key=definition.key, by=definition.by,
        tables=_tables(projections, definition), references=references, inferred=not known.references_are_known,
        place=definition.place.replace(f"{Path.cwd()}/", ""), changed=group.changed,
    )  # fmt: skip


def _tables(group: ProjectionGroup, view: View) -> dict[str, str]:
    return {name: getattr(table, "topic", None) or f"view {table.name}" for name, table in view.tables.items()}


def _rebuilding(look: Look, group: GroupState) -> Rebuilding | None:
    row = group.of_status("building")
    if row is None:
        return None
    declared_group = look.definitions.group(group.name)
    total = None if declared_group is None else len(declared_group[1].tables) + len(declared_group[1].all_views)
    return Rebuilding(row["generation"], tuple(row["loaded"]), total, row["holder"])


def _about(group: str) -> str:
    return f"group {group}"


def _pause(sources: Sources, fields: Query) -> Outcome:
    run = sources.clients.views.set_paused(required(fields, "group"), paused=True)
    return Outcome(f"generation {run.generation} of {run.group} is paused from its next batch on")


def _resume(sources: Sources, fields: Query) -> Outcome:
    run = sources.clients.views.set_paused(required(fields, "group"), paused=False)
    return Outcome(f"generation {run.generation} of {run.group} goes on")


def _drop(sources: Sources, fields: Query) -> Outcome:
    group, _ = required(fields, "group"), required(fields, "generation")  # an empty one drops no other
    dropped = on_demand.drop(sources.clients.views, group, generation=whole_number(fields, "generation"))
    return Outcome(f"dropped generation {', '.join(map(str, dropped))} of {group}")


def _command(*words: str) -> Action:
    """An action that runs a command of the group in a process of its own, with Spark."""

    def run(sources: Sources, fields: Query) -> Outcome:
        group = required(fields, "group")
        target, _ = declared(sources.definitions.group(group), f"group {group[:80]!r}")
        job = sources.jobs.start(_about(group), ["projections", words[0], target, *words[1:]])
        return Outcome(f"started: {job.command}", details=("its output is below, and stays until it ends",))

    return Action(run, audited=("group",))


def _looking_back(*words: str) -> Action:
    """An action that runs a command of one view, with the key, the moment and the condition that the form has."""

    def run(sources: Sources, fields: Query) -> Outcome:
        group, view = required(fields, "group"), required(fields, "view")
        target, definition = declared(sources.definitions.group(group), f"group {group[:80]!r}")
        definition.view(view)
        given = {name: value for name in ("time", "from", "where") if (value := fields.get(name, "").strip())}
        for name in {"time", "from"} & given.keys():
            given[name] += "" if given[name].endswith("Z") else "Z"
        key = [f"{name.removeprefix(KEY)}={value}" for name, value in fields.items() if name.startswith(KEY)]
        options = [f"--{name}={value}" for name, value in given.items()]
        job = sources.jobs.start(_about(group), ["projections", words[0], target, view, *key, *options, *words[1:]])
        return Outcome(f"started: {job.command}", details=("its output is below, and stays until it ends",))

    return Action(run, audited=("group", "view"))


PAGE: Final = Page(
    "view",
    "Views",
    views,
    actions={
        "pause": Action(_pause, audited=("group",)),
        "resume": Action(_resume, audited=("group",)),
        "drop": Action(_drop, audited=("group", "generation")),
        "rebuild": _command("rebuild", "--no-cutover"),
        "verify": _command("verify"),
        "diff": _command("diff"),
        "cutover": _command("cutover"),
        "rollback": _command("rollback"),
        "at": _looking_back("at"),
        "changes": _looking_back("diff"),
        "try": _looking_back("try"),
        "missing": _looking_back("why", "--missing"),
    },
)
