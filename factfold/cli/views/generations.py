"""What is looked at and done of groups that are built: the commands of `factfold projections` without a build."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import projections
from eventstore.errors import DeclarationError
from factfold import on_demand
from factfold.cli.events.entries import parse_moment
from factfold.cli.options import Views, argument, definition, option
from factfold.cli.show import Out
from factfold.cli.views.projections import (
    Group,
    Place,
    add_lag,
    app,
    load_group,
    open_log,
    opened_environment,
    opened_views,
    require_serving,
)

if TYPE_CHECKING:
    from projections.stores.behind_rows import SourceRow
    from projections.stores.runs import Run

__all__ = ["app"]

Name = Annotated[
    str, definition("The projection group, by its name or as module:name.", "projections", metavar="GROUP")
]


@app.command("list")
def list_groups(views_url: Views, out: Out) -> None:
    """Show the groups of a views' database, which generation of each serves, and which others exist."""
    with opened_views(views_url) as store:
        rows = store.generations()
    groups = [_summary(name, list(own)) for name, own in groupby(rows, key=lambda row: row["group"])]
    out.show(groups, map(_summary_line, groups), indent=2)


def _summary(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    serving = next((row["generation"] for row in rows if row["status"] == "serving"), None)
    others = {row["generation"]: row["status"] for row in rows if row["status"] != "serving"}
    return {"group": name, "serving": serving, "others": others}


def _summary_line(group: Mapping[str, Any]) -> str:
    serving = f"generation {group['serving']}" if group["serving"] is not None else "nothing"
    others = ", ".join(f"{number} {status}" for number, status in group["others"].items())
    return f"{group['group']}: {serving} serves{f'; {others}' if others else ''}"


@app.command()
def status(
    views_url: Views,
    out: Out,
    group: Annotated[
        str | None, definition("One group, by its name or as module:name. Default: all.", "projections")
    ] = None,
    lag: Annotated[bool, option("--lag", "Ask the log too: how many records wait, and for how long.")] = False,
) -> None:
    """Show every generation: its progress, what its view topics lack, whether it is paused, which runner holds it."""
    name = None if group is None else _name_of(group)
    with opened_views(views_url) as store:
        generations = [row for row in store.generations() if name in (None, row["group"])]
    if name is not None:
        on_demand.require_known(name, generations)
    if lag:
        with open_log(views_url) as log:
            add_lag(log, generations)
    plain = [{**row, "updated_at": str(row["updated_at"])} for row in generations]
    out.show(plain, map(_generation_line, generations), indent=2)


def _generation_line(row: Mapping[str, Any]) -> str:
    offsets = sum(o for parts in row["progress"].values() for o in parts.values())
    version = "" if row["version"] is None else f" (version {row['version']})"
    details = [f"{row['status']}{', paused' * row['paused']}", f"{offsets:,} offsets applied"]
    details += [f"loaded so far: {', '.join(row['loaded']) or 'nothing'}"] if row["status"] == "building" else []
    settled = sum(row["deletions_settled"].values())
    details += [f"{settled:,} deleted rows let go of"] if settled else []
    details += [_waiting(row["lag"], row["lag_seconds"])] if "lag" in row else []
    details += [f"topic {topic}: {rows:,} rows wait" for topic, rows in row["topics"].items()]
    details += [_final(view, result) for view, result in row["final_results"].items()]
    details += forgotten(row["retained"])
    details += [f"held by {row['holder']}"] if row["holder"] else []
    return f"{row['group']} generation {row['generation']}{version}: {'; '.join(details)}"


def forgotten(of: Mapping[str, Any]) -> list[str]:
    """Return the line about forgotten rows. The list is empty if there are none."""
    if not of or of["upto"] is None:
        return []
    rows, late = sum(of["forgotten"].values()), sum(of["set_aside"].values())
    return [f"{rows:,} rows forgotten up to {of['upto']}, {late:,} events too late for that"]


def _final(view: str, of: dict[str, Any]) -> str:
    late = f", {of['late']:,} late changes" if of["late"] else ""
    return f"view {view}: {of['given_out']:,} final results{late}, the next one due {of['next_due'] or 'never'}"


def _waiting(lag: dict[str, int], seconds: float | None) -> str:
    since = "" if seconds is None or not lag else f", the oldest record for {seconds:,.1f} s"
    return f"{sum(lag.values()):,} offsets wait{since}"


@app.command()
def finals(
    group: Name,
    view: Annotated[str, argument("A view of the group with final results.")],
    views_url: Views,
    out: Out,
    late: Annotated[bool, option("--late", "Show the changes that came too late instead.")] = False,
    after: Annotated[int, option("--after", "Only rows with a greater number (seq).")] = 0,
) -> None:
    """Show the final results of a view in the order they were given out, or the changes that came too late."""
    name = _name_of(group)
    with opened_views(views_url) as store:
        on_demand.require_finals(store.final_results(), name, view)
        with store.looking() as connection:
            for row in on_demand.results_of(connection, name, view, late=late, after=after):
                out.show(_as_plain(row), _row_line(row))


def _as_plain(row: Mapping[str, Any]) -> dict[str, Any]:
    value = None if row["value"] is None else json.loads(row["value"])
    return {**row, "key": json.loads(row["key"]), "value": value}


def _row_line(row: Mapping[str, Any]) -> str:
    reason = f"  {row['reason']}" if "reason" in row else ""
    return f"{row['seq']}  {row['key']}  {row['value'] or 'deleted'}{reason}"


@app.command()
def cutover(group: Group, place: Place, out: Out) -> None:
    """Let the new generation serve, once it has reached the offsets of the serving one, which stays."""
    definition = load_group(group)
    with opened_environment(definition, place) as environment:
        _tell_serving(projections.cut_over(environment, definition), out)


@app.command()
def rollback(group: Group, place: Place, out: Out) -> None:
    """Let the former generation of this definition serve again, once it is current."""
    definition = load_group(group)
    require_serving(place.views_url, definition.name)
    with opened_environment(definition, place) as environment:
        _tell_serving(projections.rollback(environment, definition), out)


def _tell_serving(run: Run, out: Out) -> None:
    fields = {"group": run.group, "serving": run.generation}
    out.show(fields, f"{run.group}: generation {run.generation} serves", indent=2)


@app.command()
def drop(
    group: Name,
    views_url: Views,
    out: Out,
    generation: Annotated[
        int | None, option("--generation", "This one, retired or unfinished. Default: every retired one.")
    ] = None,
) -> None:
    """Delete generations that no longer serve. You cannot roll back to them afterwards."""
    name = _name_of(group)
    with opened_views(views_url) as store:
        store.prepare()
        dropped = on_demand.drop(store, name, generation=generation)
    said = ", ".join(f"generation {number}" for number in dropped) or "nothing"
    out.show({"group": name, "dropped": dropped}, f"dropped: {said}", indent=2)


@app.command()
def pause(group: Name, views_url: Views, out: Out) -> None:
    """Pause the group's runner after its current batch. It still holds its run."""
    _set_paused(group, views_url, out, paused=True)


@app.command()
def resume(group: Name, views_url: Views, out: Out) -> None:
    """Resume a paused runner."""
    _set_paused(group, views_url, out, paused=False)


def _set_paused(group: str, views_url: str, out: Out, *, paused: bool) -> None:
    with opened_views(views_url) as store:
        store.prepare()
        run = store.set_paused(_name_of(group), paused=paused)
    fields = {"group": run.group, "generation": run.generation, "paused": paused}
    said = f"{run.group}: generation {run.generation} {'is paused' if paused else 'goes on'}"
    out.show(fields, said, indent=2)


@app.command("as-of")
def as_of(
    group: Group,
    view: Annotated[str, argument("A history of the group: history('customer_history', …).")],
    views_url: Views,
    at: Annotated[str, option("--at", "The time, with its zone: 2026-11-26T12:00:00Z.")],
    out: Out,
) -> None:
    """Show the rows of a history that were valid at a time, without Spark."""
    rows = projections.rows_as_of(views_url, load_group(group), view, parse_moment(at)).to_pylist()
    out.show(rows, ("  ".join(f"{column}={plain(value)}" for column, value in row.items()) for row in rows), indent=2)


def plain(value: Any) -> Any:
    """A value of a row, its times as ISO 8601 has them."""
    return value.isoformat() if isinstance(value, datetime) else value


@app.command()
def explain(
    group: Group,
    view: Annotated[str, argument("A view of the group.")],
    views_url: Views,
    out: Out,
) -> None:
    """Show the stages of a view: what each reads, by which columns, and what its last batch took. Without Spark."""
    stages = projections.explain(views_url, load_group(group), view)
    out.show(stages, on_demand.drawn(stages), indent=2)


def column_and_value(text: str) -> tuple[str, str]:
    column, equals, value = text.partition("=")
    if not equals:
        raise DeclarationError(f"{text!r} is no part of a key", remedy="write it as order_id=o7")
    return column, value


def behind(row: SourceRow) -> dict[str, Any]:
    values = {column: plain(value) for column, value in row.shown.items()}
    place = {"topic": row.topic, "offset": row.offset, "stream": row.stream}
    return {"table": row.table, "reached": row.reached, "values": values, "deleted": row.deleted, **place}


def behind_line(row: Mapping[str, Any]) -> str:
    values = ", ".join(f"{column}={value}" for column, value in row["values"].items())
    record = f"  (topic {row['topic']}, offset {row['offset']})" if row["topic"] else ""
    return f"{row['table']} by {row['reached']}: {'deleted' if row['deleted'] else values}{record}"


def _name_of(group: str) -> str:
    return load_group(group).name if ":" in group else group
