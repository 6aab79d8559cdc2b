"""Rows of views, and what one of them was made of; each asked for by name and read by SQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cdc.errors import UndecodableChange
from eventstore.delivery.masking import MASK
from eventstore.topics import partition_of
from factfold import on_demand
from factfold.console.page import declared
from factfold.console.sources import Clients, Reading
from projections.declaring.group import ERASURES
from projections.declaring.tables import ChangelogTable
from projections.stores.record_keys import key_decoder, key_text

if TYPE_CHECKING:
    from projections import ProjectionGroup
    from projections.stores.behind_rows import SourceRow, ViewRows
    from projections.stores.runs import RunState


@dataclass(frozen=True, slots=True)
class ShownRows:
    """The first rows of a view, masked as a whole but for its key if it reads personal columns.

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
    key, masked = _masking(clients, definition, group, generation, view)
    return ShownRows(
        result.columns, key, _masked(result, key, masked), result.total, result.total >= on_demand.COUNTED, masked
    )


def read_query(clients: Clients, group: str, generation: int, views: tuple[str, ...], text: str) -> ShownRows:
    """Return rows of a query over views of a generation. Raises QueryRefused for a view with masked columns, too."""
    _, definition = clients.definitions.group(group) or (None, None)
    hidden = {view: _masking(clients, definition, group, generation, view)[1] for view in views}
    result = on_demand.query_rows(clients.views, group, generation, text, hidden=hidden)
    rows = tuple(result.rows)
    return ShownRows(result.columns, (), rows, result.total, result.total > len(rows), masked=False)


def _masking(
    clients: Clients, declared: ProjectionGroup | None, group: str, generation: int, view: str
) -> tuple[tuple[str, ...], bool]:
    """The key of a view, and whether its values may be of a person; a group that is not declared follows erasures."""
    definition = None if declared is None else next((one for one in declared.all_views if one.name == view), None)
    if definition is None:
        return (), _follows_erasures(clients.views.states(group))
    personal = on_demand.reads_personal(definition)
    return definition.key, personal or (declared is not None and _was_personal(clients, declared, generation))


def _follows_erasures(states: Iterable[RunState]) -> bool:
    return any(ERASURES in state.progress for state in states)


def _was_personal(clients: Clients, declared: ProjectionGroup, generation: int) -> bool:
    """Whether another definition built a generation, which may have had personal columns that this one lacks."""
    states = clients.views.states(declared.name)
    built_by = {state.run.generation: state.run.fingerprint for state in states}
    return built_by.get(generation) != declared.fingerprint() and _follows_erasures(states)


def _masked(result: ViewRows, key: tuple[str, ...], masked: bool) -> tuple[tuple[Any, ...], ...]:
    if not masked:
        return tuple(result.rows)
    shown = [column in key for column in result.columns]
    return tuple(
        tuple(value if open_ else MASK for value, open_ in zip(row, shown, strict=True)) for row in result.rows
    )


def read_why(clients: Clients, group: str, generation: int, view: str, *key: tuple[str, str]) -> tuple[Why, ...]:
    """Return what a row of a view was made of. Raises NotFound if the console does not know its group's definition."""
    _, definition = declared(clients.definitions.group(group), f"group {group!r}", place=group)
    rows = on_demand.rows_behind(clients.views, definition, generation, view, dict(key))
    masked = _was_personal(clients, definition, generation)
    return tuple(_why(clients, definition, row, masked=masked) for row in rows)


def _why(clients: Clients, group: ProjectionGroup, row: SourceRow, *, masked: bool) -> Why:
    """Explain by one row; `masked` hides more than the personal columns: each but those of the key."""
    hidden = set(row.values) - set(row.key) if masked else row.personal
    values = {column: MASK if column in hidden else value for column, value in row.values.items()}
    said = (row.table, row.reached, values, row.deleted, row.stream)
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
