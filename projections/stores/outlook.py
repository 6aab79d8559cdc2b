"""What a group's definition means for the generation that serves: another one, what it takes, and what is lost."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa

from projections.declaring.group import ERASURES, ProjectionGroup
from projections.errors import DefinitionChanged
from projections.stores.comparison import stored_columns
from projections.stores.layout import GenerationLayout, ViewLayout
from projections.stores.runs import SERVING, Progress, ViewColumns, require_unchanged
from projections.stores.sql import TableStore


@dataclass(frozen=True)
class Outlook:
    """A definition next to the generation that serves.

    Attributes:
        refused: Why this definition cannot go on with it: None if it can.
        built: The version that the generation was built by.
        views: The views whose definitions differ, as far as the build noted them, with what differs of the stored
            table: the key, the types of columns.
        stages: The stages that are new, or have other columns.
        lost: The columns that views no longer have, by view.
        records: How many records a new generation would read.
        seconds: How long it would take, by the rate of the last build. None if that noted none.
        bytes: How much space it would take, by that of the one that serves. None if the database cannot tell.
    """

    refused: DefinitionChanged | None
    built: int | None
    views: Mapping[str, Sequence[str]] = field(default_factory=dict)
    stages: Sequence[str] = ()
    lost: Mapping[str, Sequence[str]] = field(default_factory=dict)
    records: int = 0
    seconds: float | None = None
    bytes: int | None = None


def outlook(store: TableStore, group: ProjectionGroup, columns: ViewColumns) -> Outlook | None:
    """Compare a definition, with the columns of its views, with the generation that serves. None if none does.

    Raises TableStoreUnavailable.

    Examples:
        >>> outlook(store, shop_views, view_columns(spark, shop_views)).refused is None
        True
    """
    if not store.is_prepared() or not (states := store.states(group.name, SERVING)):
        return None
    state = states[0]
    built: Mapping[str, list[str]] = state.built.get("columns", {})
    try:
        require_unchanged(group, state, columns)
    except DefinitionChanged as error:
        noted, signatures = state.built.get("signatures", {}), group.signatures()
        records, read = _records(state.progress), _records(state.built.get("ends", {}))
        took = state.built.get("seconds", 0.0)
        stages = {name: list(types) for name, types in columns.items() if name not in signatures}
        return Outlook(
            error,
            state.run.version,
            _changed(store, store.layout(group, state.run, columns), noted, signatures),
            sorted(name for name, own in stages.items() if built and built.get(name) != own),
            _lost(built, columns, {*noted, *signatures}),
            records,
            took * records / read if took and read else None,
            store.size(state.run),
        )
    return Outlook(None, state.run.version)


def _changed(
    store: TableStore, layout: GenerationLayout, noted: Mapping[str, str], signatures: Mapping[str, str]
) -> dict[str, list[str]]:
    with store.looking() as connection:
        found = {name: list(_differences(connection, layout.views[name])) for name in sorted(signatures)}
    return {name: one for name, one in found.items() if one or (noted and noted.get(name) != signatures[name])}


def _differences(connection: sa.Connection, view: ViewLayout) -> Iterator[str]:
    """How a view differs from its stored table: the key, which an index has, and the types of columns."""
    table, types = view.view, stored_columns(connection, view.view)
    if not types:
        yield "it is new"
        return
    looked = sa.inspect(connection)
    keys = [looked.get_pk_constraint(table.name, schema=table.schema)["constrained_columns"]]
    indexes = looked.get_indexes(table.name, schema=table.schema)
    keys += [[*map(str, one["column_names"])] for one in indexes if (one["name"] or "").endswith("$key")]
    for key in filter(None, keys):
        if "None" not in key and {*key} != {*view.key.columns}:  # None: an index of expressions
            yield f"its key was {', '.join(key)} and is {', '.join(view.key.columns)}"
    for name in view.columns:
        now = table.c[name].type.compile(dialect=connection.dialect)
        if types.get(name, now) != now:
            yield f"its column {name} was {types[name]} and is {now}"


def _records(progress: Progress) -> int:
    return sum(sum(parts.values()) for topic, parts in progress.items() if topic != ERASURES)


def _lost(built: Mapping[str, list[str]], columns: ViewColumns, views: Collection[str]) -> dict[str, list[str]]:
    """What views no longer show. A column with an underscore before it is a stage's own."""
    lost = {
        name: [one for one in built[name] if one not in columns.get(name, {}) and not one.startswith("_")]
        for name in built
        if name in views
    }
    return {name: missing for name, missing in lost.items() if missing}
