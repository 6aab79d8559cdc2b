"""Decode, fold, newest-per-key, branches and the as-of look-up in plain Python, a record at a time: Spark's oracle.

For tests only: to be read next to the definitions in docs/concepts, not for speed (some 10,000 records a second).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from cdc.changes.change_records import placeholder_of
from eventstore.erasure import KeyStore, Origin, PersonalData
from eventstore.errors import ForeignRecord, InvalidEventData, NotFramedAvro, UnknownEventType, UnknownSchema
from eventstore.fields.serialization import AvroDecoder
from eventstore.identifiers import Position
from eventstore.schema_registry import RegisteredSchema, unknown_schema
from eventstore.store import NO_METADATA, RecordedEvent
from eventstore.topics import TopicRecord, message_key, require_source
from projections.declaring.branches import Branches
from projections.declaring.columns import Setter
from projections.declaring.matching import matcher
from projections.declaring.tables import EventTable, Table
from projections.errors import InvalidPredicate

Decoded = tuple[RegisteredSchema, dict[str, Any]]
Record = tuple[int, str, bytes | None]  # offset, key, value


def fold_table(
    table: EventTable,
    records: Iterable[Record],
    registry: Mapping[int, RegisteredSchema] | None = None,
    keys: KeyStore | None = None,
    ids: Mapping[str, str] | None = None,
) -> dict[str, dict[str, Any]]:
    """The table's rows by key: every stream's events by version, each once, through setters or evolve.

    ``registry`` has the schemas of the records' writers, those of today's events unless given. Personal values are
    opened by ``keys``, and are `Sealed` without them; ``ids`` has the ids of their events by the records' keys.
    """
    known = registry or {kind.schema_id: kind.registered for kind in table.event_types()}
    decoder = AvroDecoder(known.__getitem__)
    rows = {}
    for stream, events in _streams(records).items():
        identity = stream.removeprefix(f"{table.aggregate.category}-")
        origins = [Origin(stream, (ids or {}).get(message_key(stream, version), "")) for version in sorted(events)]
        values = [decoder.decode(value) for _, value in sorted(events.items())]
        decoded = _disclosed([(*of, origin) for of, origin in zip(values, origins, strict=True)], keys)
        rows[identity] = _evolved(table, identity, decoded) if table.setters is None else _declared(table, decoded)
    return rows


def _disclosed(decoded: Sequence[tuple[*Decoded, Origin]], keys: KeyStore | None) -> list[Decoded]:
    values = PersonalData(keys).disclose(decoded)
    return [(schema, value) for (schema, *_), value in zip(decoded, values, strict=True)]


def _streams(records: Iterable[Record]) -> dict[str, dict[int, bytes]]:
    streams: dict[str, dict[int, bytes]] = {}
    deleted = set()
    for _, key, value in records:
        stream, _, version = key.rpartition("@")
        if value is None:
            deleted.add(stream)
        else:
            streams.setdefault(stream, {})[int(version)] = value
    return {stream: events for stream, events in streams.items() if stream not in deleted}


def _declared(table: EventTable, decoded: Iterable[Decoded]) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(table.payload)
    for written, stored in decoded:
        for kind, fields in table.aggregate.stored_type(written.name).today(written.version, stored):
            for column, setters in (table.setters or {}).items():
                for setter in setters:
                    if setter.event.name == kind.name:
                        row[column] = _set(setter, fields)
    return row


def _set(setter: Setter, fields: Mapping[str, Any]) -> Any:
    return setter.value if setter.field is None else fields.get(setter.field)


def _evolved(table: EventTable, identity: str, decoded: Iterable[Decoded]) -> dict[str, Any]:
    state = table.aggregate.initial_state(identity)
    for written, fields in decoded:
        state = table.aggregate.evolve_plain(state, written.name, fields, schema_version=written.version)
    return state.state()


def newest_per_key(records: Iterable[Record]) -> dict[str, dict[str, Any]]:
    """The live rows of a changelog by the text of their key: one change after another, older ones passed over.

    A snapshot's row loses to every streamed change of its key; a tombstone deletes at the position of its key's record
    before it, and nothing where that one was old; an unavailable value leaves the column as it was.
    """
    rows: dict[str, dict[str, Any]] = {}
    places: dict[str, tuple[bool, int]] = {}
    was_newest: dict[str, bool] = {}
    for _, key, value in sorted(records):
        if value is None:
            if was_newest.get(key, True):
                rows.pop(key, None)
            continue
        change = json.loads(value)
        place = _place(change)
        was_newest[key] = place >= places.get(key, (False, -1))
        if was_newest[key]:
            places[key] = place
            _apply(rows, key, change)
    return rows


def accepted(table: Table, rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The rows that the table's condition accepts, all of a table without one."""
    if table.condition is None:
        yield from rows
    else:
        meets = matcher(table.condition)
        yield from (row for row in rows if meets(table.topic, row))


def _apply(rows: dict[str, dict[str, Any]], key: str, change: Mapping[str, Any]) -> None:
    if change["op"] == "d":
        rows.pop(key, None)
        return
    before, mark = rows.get(key, {}), placeholder_of(change)
    rows[key] = {c: before.get(c) if v == mark else v for c, v in change["after"].items()}


@dataclass(frozen=True, order=True)
class RowVersion:
    """What a row was from a change on; ``row`` is None after a deletion, ``since`` None for the first of a snapshot.

    ``place`` orders the versions of a key: those of snapshots before all others, then by LSN.
    """

    place: tuple[bool, int]
    since: int | None = field(compare=False)
    row: Mapping[str, Any] | None = field(compare=False)


def versions_per_key(records: Iterable[Record]) -> dict[str, list[RowVersion]]:
    """The versions of every row of a changelog by the text of its key, in their order; times in microseconds."""
    changes: dict[str, dict[tuple[bool, int], Mapping[str, Any]]] = {}
    for _, key, value in sorted(records):
        if value is not None:
            change = json.loads(value)
            known = changes.setdefault(key, {}).setdefault(_place(change), change)
            _require_same(known, change, key)
    return {key: _versions(sorted(by_place.items())) for key, by_place in changes.items()}


def _require_same(known: Mapping[str, Any], again: Mapping[str, Any], key: str) -> None:
    """A record may come twice; two different changes of a row at one place are an error."""
    if (known["op"], known["after"]) != (again["op"], again["after"]):
        raise ValueError(f"two changes of {key} have the position {_place(again)}")


def _place(change: Mapping[str, Any]) -> tuple[bool, int]:
    return change["source"]["snapshot"] == "false", change["source"]["lsn"]


def _committed(source: Mapping[str, int]) -> int:
    """In microseconds; triggers of SQLite know milliseconds only."""
    return source["ts_us"] if "ts_us" in source else source["ts_ms"] * 1000


def _versions(changes: Iterable[tuple[tuple[bool, int], Mapping[str, Any]]]) -> list[RowVersion]:
    versions: list[RowVersion] = []
    known: dict[str, Any] = {}
    for place, change in changes:
        after, mark = change["after"], placeholder_of(change)
        if after is not None:
            known = {c: known.get(c) if v == mark else v for c, v in after.items()}
        of_first_snapshot = not versions and not place[0]
        since = None if of_first_snapshot else _committed(change["source"])
        versions.append(RowVersion(place, since, None if after is None else known))
    return versions


def valid_at(versions: Iterable[RowVersion], time: int) -> Mapping[str, Any] | None:
    """The row as of a time: of the versions valid from then or before, the one that stands last."""
    begun = [version for version in versions if version.since is None or version.since <= time]
    return max(begun).row if begun else None


def route(
    branches: Branches, records: Iterable[TopicRecord], registry: Mapping[int, RegisteredSchema]
) -> list[tuple[TopicRecord, str, str | None]]:
    """Each record with a value, the topic it belongs in, and the name of the error that makes it a dead letter."""
    decoder = AvroDecoder(_lookup(registry))
    present = (record for record in records if record.value is not None)
    return [(record, *_routed(branches, record, decoder, registry)) for record in present]


def _routed(
    branches: Branches, record: TopicRecord, decoder: AvroDecoder, registry: Mapping[int, RegisteredSchema]
) -> tuple[str, str | None]:
    try:
        if branches.source is not None:
            require_source(record.headers, branches.source, place=record.place)
        ((schema, data),) = _disclosed([(*decoder.decode(record.value or b""), Origin("", ""))], None)
        name = branches.branch_of(_event(schema, data), schema=schema)
    except (ForeignRecord, NotFramedAvro, InvalidEventData, UnknownSchema, UnknownEventType, InvalidPredicate) as error:
        return branches.dead_letter_topic, type(error).__name__
    return branches.topics[name], None


def _lookup(registry: Mapping[int, RegisteredSchema]) -> Callable[[int], RegisteredSchema]:
    def lookup(schema_id: int) -> RegisteredSchema:
        if schema_id in registry:
            return registry[schema_id]
        raise unknown_schema(schema_id, "the registry")

    return lookup


def _event(schema: RegisteredSchema, data: Mapping[str, Any]) -> RecordedEvent:
    """An event of which only type and data count."""
    return RecordedEvent(
        id=UUID(int=0), stream="any-1", version=0, type=schema.name, schema_id=schema.id, data=data,
        schema_version=schema.version,
        metadata=NO_METADATA, time=datetime.fromtimestamp(0, UTC), position=Position(0, 0),
    )  # fmt: skip
