"""Views held against the generations that serve: which plan, which are built again and why, who loses a column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from cdc.findings import size
from factfold import on_demand
from factfold.cli.views.projections import opened_views
from factfold.preflight.findings import Checked, Finding, Level, green, red, unknown, yellow

if TYPE_CHECKING:
    from projections import ProjectionGroup
    from projections.stores.outlook import Outlook
    from projections.stores.sql import TableStore

_TELL: Final = "look for readers of the view outside of this service"


def views(checked: Checked) -> Iterator[Finding]:
    """Every view can be planned, and the generation that serves was built by its definition."""
    groups = checked.definitions.groups
    if not groups:
        if checked.places.views_url is not None:
            yield unknown("built views", "the code has no group of views", "name the package of the views too")
        return
    store = None
    if checked.places.views_url is None:
        yield unknown("built views", "no database of views is named", "give --views-url")
    else:
        store = checked.opened.enter_context(opened_views(checked.places.views_url)).read_only()
    spark = checked.session(checked.opened)
    for number, (target, group) in enumerate(groups.items()):
        checked.tell(number, len(groups), f"planning {group.name}", "groups")
        try:
            columns = on_demand.view_columns(spark, group)
        except Exception as error:  # whatever a view's function raises
            one = Finding.of(Level.RED, getattr(error, "place", None) or f"group {group.name}", error)
            yield replace(one, cause=f"it cannot be planned: {one.cause}")
            continue
        yield green(f"group {group.name}", f"{len(group.all_views)} views can be planned")
        if store is not None:
            yield from _built(checked, store, target, group, on_demand.outlook(store, group, columns))


def _built(
    checked: Checked, store: TableStore, target: str, group: ProjectionGroup, found: Outlook | None
) -> Iterator[Finding]:
    subject, rebuild = f"group {group.name}", f"factfold projections rebuild {target}"
    if found is None:
        yield yellow(subject, "no generation of it serves", rebuild, "not-built")
    elif found.refused is None:
        yield green(subject, "the generation that serves was built by this definition")
    elif found.built is None or found.built < group.version:
        cause = f"it needs a new generation: {_why(found, group)}. {_takes(found)}"
        yield yellow(
            subject, cause, f"{rebuild}, with the new code while the old generation serves", "needs-generation"
        )
    else:
        cause = f"its runner and its rebuild will stop: {_why(found, group)}"
        yield red(subject, cause, found.refused.remedy, found.refused.code)
    for name, columns in (found.lost if found is not None else {}).items():
        yield from _lost(checked, group, name, columns)


def _why(found: Outlook, group: ProjectionGroup) -> str:
    built, own = found.built, group.version
    version = f"version {own}" if built == own else f"version {built} became {own}"
    changed = [f"view {name} changed{_said(one)}" for name, one in found.views.items()] or ["its definition changed"]
    stages = [f"stage {name} is new or has other columns" for name in found.stages]
    return ", ".join([f"{version} of it has another definition" if built == own else version, *changed, *stages])


def _said(changes: Sequence[str]) -> str:
    return f": {', '.join(changes)}" if changes else ""


def _takes(found: Outlook) -> str:
    time = "" if found.seconds is None else f", about {timedelta(seconds=round(found.seconds))}"
    space = "" if found.bytes is None else f" and {size(found.bytes)} while both exist"
    return f"It reads {found.records:,} records{time}{space}"


def _lost(checked: Checked, group: ProjectionGroup, name: str, columns: Sequence[str]) -> Iterator[Finding]:
    """Columns that disappear, and what reads them in the topic of their view."""
    view = next((one for one in group.all_views if one.name == name), None)
    if view is None:
        yield yellow(f"view {name}", "it disappears with the new generation", _TELL, "view-removed")
        return
    filled, definitions = set(view.filled), checked.definitions
    handlers = [f"subscription {one.group}" for one in definitions.subscriptions.values() if filled & {*one.topics}]
    tables = [one for other in definitions.groups.values() for one in other.tables.items() if one[1].topic in filled]
    for column in columns:
        broken = [f"table {table}" for table, declared in tables if column in declared.columns]
        readers = ", ".join([*handlers, *broken])
        read = f", and topic {', '.join(filled)} is read by {readers}" if readers else ""
        remedy = "deploy readers that do without it first" if readers else _TELL
        yield (red if broken else yellow)(f"view {name}", f"column {column} disappears{read}", remedy, "column-removed")
