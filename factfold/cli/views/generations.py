"""`factfold projections list`, `status`, `finals`, `diff`, `cutover`, `rollback`, `drop`, `pause`, `resume`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

import projections
from factfold import on_demand
from factfold.cli.cdc.comparisons import DIFFERS, as_plain, print_comparison, without_personal
from factfold.cli.completions import completes
from factfold.cli.given_options import with_options
from factfold.cli.shown_values import echo
from factfold.cli.views.opened_views import opened_views, require_serving
from factfold.cli.views.projections import (
    Group,
    Json,
    Place,
    Views,
    app,
    load_group,
    opened_environment,
    print_json,
)
from factfold.cli.views.run_lag import add_lag, open_log

if TYPE_CHECKING:
    from projections.stores.runs import Run

__all__ = ["app"]

Name = Annotated[
    str,
    typer.Argument(
        help="The projection group, by its name or as module:name.",
        metavar="GROUP",
        autocompletion=completes("projections"),
    ),
]
MaybeName = Annotated[
    str | None,
    typer.Argument(
        help="One group, by its name or as module:name. Default: all.", autocompletion=completes("projections")
    ),
]


@app.command("list")
def list_groups(views_url: Views, as_json: Json = False) -> None:
    """Show the groups of a views' database, which generation of each serves, and which others exist."""
    with opened_views(views_url) as store:
        groups = [
            _summary(name, list(rows)) for name, rows in groupby(store.generations(), key=lambda row: row["group"])
        ]
    if as_json:
        print_json(groups)
    for group in () if as_json else groups:
        serving = f"generation {group['serving']}" if group["serving"] is not None else "nothing"
        others = ", ".join(f"{number} {status}" for number, status in group["others"].items())
        echo(f"{group['group']}: {serving} serves{f'; {others}' if others else ''}")


def _summary(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    serving = next((row["generation"] for row in rows if row["status"] == "serving"), None)
    others = {row["generation"]: row["status"] for row in rows if row["status"] != "serving"}
    return {"group": name, "serving": serving, "others": others}


@app.command()
def status(
    views_url: Views,
    group: MaybeName = None,
    lag: Annotated[
        bool, typer.Option("--lag", help="Ask the log too: how many records wait, and for how long.")
    ] = False,
    as_json: Json = False,
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
    if as_json:
        print_json(generations)
    for row in () if as_json else generations:
        offsets = sum(o for parts in row["progress"].values() for o in parts.values())
        version = "" if row["version"] is None else f" (version {row['version']})"
        details = [f"{row['status']}{', paused' * row['paused']}", f"{offsets:,} offsets applied"]
        details += [f"loaded so far: {', '.join(row['loaded']) or 'nothing'}"] if row["status"] == "building" else []
        settled = sum(row["deletions_settled"].values())
        details += [f"{settled:,} deleted rows let go of"] if settled else []
        details += [_waiting(row["lag"], row["lag_seconds"])] if lag else []
        details += [f"topic {topic}: {rows:,} rows wait" for topic, rows in row["topics"].items()]
        details += [_final(view, result) for view, result in row["final_results"].items()]
        details += forgotten(row["retained"])
        details += [f"held by {row['holder']}"] if row["holder"] else []
        echo(f"{row['group']} generation {row['generation']}{version}: {'; '.join(details)}")


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
    view: Annotated[str, typer.Argument(help="A view of the group with final results.")],
    views_url: Views,
    late: Annotated[bool, typer.Option("--late", help="Show the changes that came too late instead.")] = False,
    after: Annotated[int, typer.Option("--after", help="Only rows with a greater number (seq).")] = 0,
    as_json: Json = False,
) -> None:
    """Show the final results of a view in the order they were given out, or the changes that came too late."""
    name = _name_of(group)
    with opened_views(views_url) as store:
        on_demand.require_finals(store.final_results(), name, view)
        assert store.outbox is not None  # noqa: S101 - a store with final results is a database
        with store.outbox.looking() as connection:
            for row in on_demand.results_of(connection, name, view, late=late, after=after):
                echo(json.dumps(_as_plain(row)) if as_json else _row_line(row))


def _as_plain(row: Mapping[str, Any]) -> dict[str, Any]:
    value = None if row["value"] is None else json.loads(row["value"])
    return {**row, "key": json.loads(row["key"]), "value": value, "at": row["at"].isoformat()}


def _row_line(row: Mapping[str, Any]) -> str:
    reason = f"  {row['reason']}" if "reason" in row else ""
    return f"{row['seq']}  {row['key']}  {row['value'] or 'deleted'}{reason}"


@app.command()
@with_options
def diff(
    group: Group,
    place: Place,
    as_json: Json = False,
) -> None:
    """Compare the generation that was built with the serving one at equal offsets. Exit code 3 if a row differs."""
    definition = load_group(group)
    require_serving(place.views_url, definition.name)
    with opened_environment(definition, place) as environment:
        comparisons = without_personal(projections.diff(environment, definition), environment, definition)
    if as_json:
        print_json(as_plain(comparisons))
    else:
        print_comparison(comparisons)
    if not all(one.equal for one in comparisons.values()):
        raise typer.Exit(DIFFERS)


@app.command()
@with_options
def cutover(
    group: Group,
    place: Place,
    as_json: Json = False,
) -> None:
    """Let the new generation serve, once it has reached the offsets of the serving one, which stays."""
    definition = load_group(group)
    with opened_environment(definition, place) as environment:
        _tell_serving(projections.cut_over(environment, definition), as_json=as_json)


@app.command()
@with_options
def rollback(
    group: Group,
    place: Place,
    as_json: Json = False,
) -> None:
    """Let the former generation of this definition serve again, once it is current."""
    definition = load_group(group)
    require_serving(place.views_url, definition.name)
    with opened_environment(definition, place) as environment:
        _tell_serving(projections.rollback(environment, definition), as_json=as_json)


def _tell_serving(run: Run, *, as_json: bool) -> None:
    if as_json:
        print_json({"group": run.group, "serving": run.generation})
    else:
        echo(f"{run.group}: generation {run.generation} serves")


@app.command()
def drop(
    group: Name,
    views_url: Views,
    generation: Annotated[
        int | None, typer.Option("--generation", help="This one, retired or unfinished. Default: every retired one.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Delete generations that no longer serve. You cannot roll back to them afterwards."""
    with opened_views(views_url) as store:
        store.prepare()
        dropped = on_demand.drop(store, _name_of(group), generation=generation)
    if as_json:
        print_json({"group": _name_of(group), "dropped": dropped})
    else:
        echo(f"dropped: {', '.join(f'generation {number}' for number in dropped) or 'nothing'}")


@app.command()
def pause(group: Name, views_url: Views, as_json: Json = False) -> None:
    """Pause the group's runner after its current batch. It still holds its run."""
    _set_paused(group, views_url, paused=True, as_json=as_json)


@app.command()
def resume(group: Name, views_url: Views, as_json: Json = False) -> None:
    """Resume a paused runner."""
    _set_paused(group, views_url, paused=False, as_json=as_json)


def _set_paused(group: str, views_url: str, *, paused: bool, as_json: bool) -> None:
    with opened_views(views_url) as store:
        store.prepare()
        run = (on_demand.pause if paused else on_demand.resume)(store, _name_of(group))
    if as_json:
        print_json({"group": run.group, "generation": run.generation, "paused": paused})
    else:
        echo(f"{run.group}: generation {run.generation} {'is paused' if paused else 'goes on'}")


def _name_of(group: str) -> str:
    return load_group(group).name if ":" in group else group
