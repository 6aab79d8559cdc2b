"""Rows of views, and what one of them was made of; each asked for by name and read by SQL."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cdc.errors import UndecodableChange
from eventstore.delivery.masking import MASK
from eventstore.topics import partition_of
from factfold import on_demand
from factfold.console.page import declared
from factfold.console.sources import Clients, Reading
from projections.declaring.tables import ChangelogTable
from projections.stores.record_keys import key_decoder, key_text

if TYPE_CHECKING:
    from projections import ProjectionGroup
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
    """Return rows of a query over views of a generation. Raises QueryRefused."""
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
    values = {column: MASK if column in row.personal else value for column, value in row.values.items()}
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
STAGES: Final = Reading(read_stages)
