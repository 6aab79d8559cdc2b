"""Decode, fold and newest-per-key in plain Python, one record at a time: the oracle of the Spark code, in tests only.

Written for being read next to the definitions in docs/concepts, not for speed: some 10,000 records a second.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from cdc.rules import UNAVAILABLE
from eventstore.serialization import AvroDecoder
from projections.tables import EventTable, Setter

Record = tuple[int, str, bytes | None]  # offset, key, value


def fold_table(table: EventTable, records: Iterable[Record]) -> dict[str, dict[str, Any]]:
    """The table's rows by key: every stream's events by version, each once, through setters or evolve."""
    names = {kind.schema_id: kind.name for kind in table.event_types()}
    schemas = {kind.schema_id: kind.registered for kind in table.event_types()}
    decoder = AvroDecoder(schemas.__getitem__)
    rows = {}
    for stream, events in _streams(records).items():
        identity = stream.removeprefix(f"{table.aggregate.category}-")
        decoded = [decoder.decode(value) for _, value in sorted(events.items())]
        facts = [(names[schema_id], fields) for schema_id, fields in decoded]
        rows[identity] = _evolved(table, identity, facts) if table.setters is None else _declared(table, facts)
    return rows


def _streams(records: Iterable[Record]) -> dict[str, dict[int, bytes]]:
    streams: dict[str, dict[int, bytes]] = {}
    for _, key, value in records:
        stream, _, version = key.rpartition("@")
        if value is not None:
            streams.setdefault(stream, {})[int(version)] = value
    return streams


def _declared(table: EventTable, facts: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(table.payload)
    for name, fields in facts:
        for column, setters in (table.setters or {}).items():
            for setter in setters:
                if setter.event.name == name:
                    row[column] = _set(setter, fields)
    return row


def _set(setter: Setter, fields: Mapping[str, Any]) -> Any:
    return setter.value if setter.field is None else fields.get(setter.field)


def _evolved(table: EventTable, identity: str, facts: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    state = table.aggregate.initial_state(identity)
    for name, fields in facts:
        state = table.aggregate.evolve_plain(state, name, fields)
    return state.state()


def newest_per_key(records: Iterable[Record]) -> dict[str, dict[str, Any]]:
    """The live rows of a changelog by the text of their key: one change after another, older ones passed over.

    A snapshot's row loses to every streamed change of its key; a tombstone deletes at the position of the record before
    it; an unavailable value leaves the column as it was.
    """
    rows: dict[str, dict[str, Any]] = {}
    places: dict[str, tuple[bool, int]] = {}
    for _, key, value in sorted(records):
        if value is None:
            rows.pop(key, None)
            continue
        change = json.loads(value)
        place = (change["source"]["snapshot"] == "false", change["source"]["lsn"])
        if place < places.get(key, (False, -1)):
            continue
        places[key] = place
        _apply(rows, key, change)
    return rows


def _apply(rows: dict[str, dict[str, Any]], key: str, change: Mapping[str, Any]) -> None:
    if change["op"] == "d":
        rows.pop(key, None)
        return
    before = rows.get(key, {})
    rows[key] = {c: before.get(c) if v == UNAVAILABLE else v for c, v in change["after"].items()}
