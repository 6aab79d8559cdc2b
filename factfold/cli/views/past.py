"""What views were, and what a changed definition would make of them: `factfold projections at`, `diff` and `try`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import projections
from eventstore.delivery.source import MASK
from eventstore.errors import DeclarationError, NotFound
from factfold import on_demand
from factfold.cli.events.entries import parse_moment
from factfold.cli.options import argument, option
from factfold.cli.show import Out, aligned, answer, progress
from factfold.cli.views.generations import app, behind, behind_line, column_and_value, plain
from factfold.cli.views.projections import (
    Group,
    Place,
    as_plain,
    comparison_lines,
    load_group,
    masked_row,
    opened_environment,
    opened_views,
    personal_of,
    require_serving,
    row_lines,
    without_personal,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from projections import Environment, ProjectionGroup
    from projections.lifecycle.past import Moment, ViewChanges
    from projections.lifecycle.trying import TriedView
    from projections.spark.views.missing import Dropped

__all__ = ["app"]

_OFFSET: Final = re.compile(r"(?P<topic>[\w.-]+)\[(?P<partition>\d+)\]@(?P<offset>\d+)", re.ASCII)

View = Annotated[str, argument("A view of the group.")]
Where = Annotated[str | None, option("--where", "Only rows with this condition over the view's columns, in SQL.")]
Limit = Annotated[int, option("--limit", "Show at most this many rows.", min=1)]


@app.command()
def at(
    group: Group,
    view: View,
    place: Place,
    out: Out,
    time: Annotated[str | None, option("--time", "2026-11-26T12:00:00Z, or how long ago: 15m, 2h, 3d.")] = None,
    offsets: Annotated[
        str | None, option("--offsets", "Read topics up to here: order[0]@120,order[1]@98. Others to their ends.")
    ] = None,
    where: Where = None,
    into: Annotated[str | None, option("--into", "Write all rows into a new table, too.")] = None,
    limit: Limit = 20,
) -> None:
    """Show a view as it was at a time, computed again from the log."""
    if (time is None) == (offsets is None):
        raise DeclarationError("a view is shown at one moment", remedy="give --time or --offsets, one of the two")
    definition = load_group(group)
    definition.view(view)
    then = _offsets(offsets) if offsets is not None else parse_moment(str(time))
    with opened_environment(definition, place) as environment, _computing(view):
        personal = _personal(environment, definition, view)
        where = where and on_demand.asked_condition(where, hidden=personal)
        found = projections.read_view(environment, definition, view, at=then, where=where, most=limit + 1, into=into)
    shown = _masked(found, personal)
    out.show({"rows": shown[:limit], "more": len(shown) > limit}, _row_lines(shown, limit), indent=2)


@app.command()
def why(
    group: Group,
    view: View,
    key: Annotated[list[str], argument("The key of the row, each column as order_id=o7.", metavar="COLUMN=VALUE")],
    place: Place,
    out: Out,
    missing: Annotated[
        bool, option("--missing", "Show where a row was lost that the view does not have, with Spark.")
    ] = False,
) -> None:
    """Show what a row of a view was made of, and which record set each of these rows last."""
    declared, columns = load_group(group), dict(map(column_and_value, key))
    if missing:
        _why_missing(declared, view, columns, place, out)
        return
    with opened_views(place.views_url) as store:
        generation = store.serving_state(declared.name).run.generation
        rows = on_demand.rows_behind(store, declared, generation, view, columns)
    if not rows:
        raise NotFound(f"{view} has no row of {' '.join(key)}", remedy="find out why: give --missing, too")
    found = [behind(row) for row in rows]
    out.show(found, map(behind_line, found), indent=2)


def _why_missing(definition: ProjectionGroup, view: str, key: Mapping[str, str], place: Place, out: Out) -> None:
    with opened_environment(definition, place) as environment, _computing(view):
        found = on_demand.why_missing(environment, definition, view, key)
    if not found:
        raise NotFound(
            f"the tables of {view} have what makes the row", remedy="show it without --missing, or verify the group"
        )
    out.show(found, map(_lost_line, found), indent=2)


_LOST: Final[Mapping[str, str]] = {
    "filter": "no row meets {}",
    "join": "no row of both sides meets {}",
    "anti join": "a row that excludes it meets {}",
    "deleted": "the row was deleted",
    "no row": "no record set a row with {}",
    "other": "lost by {}",
}


def _lost_line(found: Dropped) -> str:
    values = "; ".join(", ".join(f"{c}={plain(v)}" for c, v in row.items() if c != "_deleted") for row in found.values)
    return f"{found.place}: {_LOST[found.step].format(found.condition)}{f': {values}' if values else ''}"


@app.command()
def diff(
    group: Group,
    place: Place,
    out: Out,
    view: Annotated[str | None, argument("A view of the group, to compare two moments of it.")] = None,
    start: Annotated[str | None, option("--from", "The earlier moment: a time, or order[0]@120,order[1]@98.")] = None,
    end: Annotated[str | None, option("--to", "The later moment. Default: now.")] = None,
    where: Where = None,
    limit: Limit = 20,
) -> None:
    """Compare the generation that was built with the serving one at equal offsets. Exit code 3 if a row differs.

    With a view and --from, compare two moments of the view instead: which rows changed, and by which records.
    """
    definition = load_group(group)
    if (view is None) != (start is None) or (view is None and (end, where) != (None, None)):
        raise DeclarationError(
            "two moments of one view are compared", remedy="give the view and --from, or none of both"
        )
    require_serving(place.views_url, definition.name)
    with opened_environment(definition, place) as environment:
        if view is not None and start is not None:
            _diff_moments(environment, definition, view, out, (start, end), where, limit)
            return
        comparisons = without_personal(projections.diff(environment, definition), environment, definition)
    out.show(as_plain(comparisons), comparison_lines(comparisons), indent=2)
    answer(all(one.equal for one in comparisons.values()))


def _diff_moments(
    environment: Environment,
    definition: ProjectionGroup,
    view: str,
    out: Out,
    between: tuple[str, str | None],
    where: str | None,
    limit: int,
) -> None:
    start, end = _moment(between[0]), {} if between[1] is None else _moment(between[1])
    where = where and on_demand.asked_condition(where, hidden=_personal(environment, definition, view))
    with _computing(view):
        changes = projections.view_changes(environment, definition, view, start=start, end=end, where=where, most=limit)
    personal = personal_of(environment, definition, view, [one.row for one in changes.changed])
    rows = [dataclasses.replace(one, row=masked_row(one.row, personal)) for one in changes.changed]
    shown = dataclasses.replace(changes, changed=tuple(rows))
    out.show(_plain_changes(shown), _change_lines(shown), indent=2)
    answer(not changes.changed)


def _plain_changes(changes: ViewChanges) -> dict[str, Any]:
    changed = [
        {**dataclasses.asdict(one.row), "records": [behind(record) for record in one.records]}
        for one in changes.changed
    ]
    return {"rows_before": changes.rows_before, "rows_after": changes.rows_after, "changed": changed}


def _change_lines(changes: ViewChanges) -> Iterator[str]:
    yield f"{changes.rows_before:,} rows before, {changes.rows_after:,} after"
    for one in changes.changed:
        yield from row_lines(one.row, "before", "after")
        yield from (f"    by {behind_line(behind(record))}" for record in one.records)


@app.command("try")
def try_(
    group: Group,
    view: View,
    place: Place,
    out: Out,
    sample: Annotated[
        int | None, option("--sample", "Compare only so many keys that serve. Default: all rows.", min=1)
    ] = None,
    limit: Limit = 5,
) -> None:
    """Compute a view by the code's definition, and compare it with the serving one. Exit code 3 if it differs.

    The serving view stays, and nothing of the try does.
    """
    definition = load_group(group)
    require_serving(place.views_url, definition.name)
    with opened_environment(definition, place) as environment, _computing(view):
        tried = projections.try_view(environment, definition, view, sample=sample, most=limit)
        personal = personal_of(environment, definition, view, tried.differing)
    tried = dataclasses.replace(tried, differing=tuple(masked_row(row, personal) for row in tried.differing))
    out.show(dataclasses.asdict(tried) | {"equal": tried.equal}, _tried_lines(view, tried), indent=2)
    answer(tried.equal)


def _tried_lines(view: str, tried: TriedView) -> Iterator[str]:
    serving = "not comparable" if tried.serving_rows is None else f"{tried.serving_rows:,} rows serving"
    yield f"{view}: {serving}, {tried.new_rows:,} by this definition: {'equal' if tried.equal else 'DIFFERS'}"
    for name, columns in (("new", tried.added), ("missing", tried.removed)):
        if columns:
            yield f"  {name} columns: {', '.join(columns)}"
    for row in tried.differing:
        yield from row_lines(row, "serving", "new")
    noted = "" if tried.serving_seconds is None else f", {tried.serving_seconds:.1f} s when the serving one was built"
    yield f"  computed in {tried.seconds:.1f} s{noted}"


def _computing(view: str) -> Any:
    return progress(f"{view}: computing")


def _personal(environment: Environment, group: ProjectionGroup, view: str) -> set[str]:
    return {*on_demand.personal_columns(environment.spark, group).get(view, ())} - {*group.view(view).key}


def _moment(text: str) -> Moment:
    """A time, or offsets as errors and dead letters write them: ``order[0]@120``."""
    return _offsets(text) if "@" in text else parse_moment(text)


def _offsets(text: str) -> dict[str, dict[int, int]]:
    offsets: dict[str, dict[int, int]] = {}
    for part in text.split(","):
        found = _OFFSET.fullmatch(part.strip())
        if found is None:
            raise DeclarationError(f"{part.strip()!r} is no offset", remedy="write it as order[0]@120")
        of_topic = offsets.setdefault(found["topic"], {})
        if int(found["partition"]) in of_topic:
            raise DeclarationError(f"{part.strip()!r} is the second offset of its partition", remedy="give one of them")
        of_topic[int(found["partition"])] = int(found["offset"])
    return offsets


def _masked(rows: pa.Table, personal: set[str]) -> list[dict[str, Any]]:
    return [{c: MASK if c in personal else v for c, v in row.items()} for row in rows.to_pylist()]


def _row_lines(rows: Sequence[Mapping[str, Any]], limit: int) -> Iterator[str]:
    if not rows:
        yield "no rows"
        return
    yield from aligned([list(rows[0]), *([str(plain(value)) for value in row.values()] for row in rows[:limit])])
    if len(rows) > limit:
        yield f"… and more: raise --limit above {limit}, or write all rows into a table with --into"
