"""What a history must show, by plain Python: every version of every row, and how long it was valid."""

from __future__ import annotations

import json
from itertools import groupby

from eventstore.fields.serialization import AvroDecoder
from tests.reference import fold_table, versions_per_key

MINUTE = 60_000_000


def history_of(records, *, keep=None):
    """The rows of a captured table's history: key and columns as a dictionary, and both times in microseconds."""
    found = []
    for key, versions in versions_per_key(records).items():
        states = [(v.since, None if v.row is None else {**v.row, **json.loads(key)}) for v in versions]
        found += lasting(states, keep=keep)
    return in_order(found)


def event_history_of(table, records, times, *, registry):
    """The rows of the history of a table of events, folded anew up to each event that sets a column, and the first.

    ``times`` are by the keys of records.
    """
    found = []
    newest = {key: record for record in sorted(records) for key in [record[1]]}
    for stream, events in groupby(sorted(newest.values(), key=_place), key=lambda record: record[1].rpartition("@")[0]):
        of_stream = list(events)
        gone = any(value is None for _, _, value in records_of(records, stream))
        states = []
        for number in range(0 if gone else len(of_stream)):
            if number and not sets_a_column(table, of_stream[number][2], registry):
                continue
            ((identity, row),) = fold_table(table, of_stream[: number + 1], registry).items()
            states.append((times[of_stream[number][1]], {table.key[0]: identity, **row}))
        found += lasting(states)
    return in_order(found)


def sets_a_column(table, value, registry):
    written, fields = AvroDecoder(registry.__getitem__).decode(value)
    happened = {kind.name for kind, _ in table.aggregate.stored_type(written.name).today(written.version, fields)}
    return any(setter.event.name in happened for setters in table.setters.values() for setter in setters)


def _place(record):
    stream, _, version = record[1].rpartition("@")
    return stream, int(version)


def records_of(records, stream):
    return [record for record in records if record[1].rpartition("@")[0] == stream]


def lasting(states, *, keep=None):
    """Of states in their order, each with its beginning, those that were valid for a while."""
    spans = []
    for number, (since, row) in enumerate(states):
        until = min((later for later, _ in states[number + 1 :]), default=None)
        if row is not None and (since is None or until is None or since < until):
            spans.append((row, since, until))
    newest = max((time for _, *times in spans for time in times if time is not None), default=0)
    return [span for span in spans if keep is None or span[2] is None or span[2] + keep >= newest]


def at(rows, moment):
    """The rows of a history as of a time in microseconds."""
    return [
        row for row, since, until in rows if (since is None or since <= moment) and (until is None or moment < until)
    ]


def in_order(spans):
    return sorted(spans, key=repr)
