"""Records that nobody can read, between those of a history, and what a dead-letter topic should hold of them."""

from __future__ import annotations

import json
import struct
from decimal import Decimal

from eventstore.event_types import event_type_of
from eventstore.kafka.consumer import read_range
from eventstore.kafka.producer import OutgoingRecord
from eventstore.topics import DEAD_LETTER_PREFIX, dead_letter_topic_of
from tests.integration.tickets import Ticket

OPENED = Ticket.Opened(customer_id=1, hours=Decimal("2.5"))
FRAMED = event_type_of(OPENED).encode(OPENED)
BAD_EVENTS = {
    "truncated": FRAMED[:8], "unknown schema": struct.pack(">bI", 0, 77) + b"x", "no frame": b"{}", "empty": b"",
}  # fmt: skip
HEADERS = (("traceparent", b"00-abc"),)


class BadRecords:
    """What to send, and the keys and values that must come out at the other end."""

    def __init__(self, writer):
        self._writer = writer
        self.events = {f"bad{number}": value for number, value in enumerate(BAD_EVENTS.values())}

    def of_events(self):
        """A stream's first event each, and a good one behind it."""
        for stream, value in self.events.items():
            yield self._event(f"{stream}@0", value)
            yield self._event(f"{stream}@1", event_type_of(Ticket.Closed()).encode(Ticket.Closed()))
        yield self._event("not a version", FRAMED)

    def of_changes(self):
        """Change events that are none, or hold what their column cannot."""
        for number, value in enumerate(self._changes()):
            topic, key = self._writer.changes_topics["customers"], json.dumps({"id": 9_000 + number}).encode()
            yield OutgoingRecord(topic=topic, key=key, value=value, headers=HEADERS)

    def repairs(self):
        """The streams' first events as they should have been."""
        return [self._event(f"{stream}@0", FRAMED) for stream in self.events]

    def _changes(self):
        good = {"op": "c", "after": {"id": 9_000}, "source": {"lsn": 7}}
        yield json.dumps(good).encode()[:-9]
        yield json.dumps(good | {"after": {"id": 9_001, "region_id": "north"}}).encode()
        yield json.dumps(good | {"source": {}}).encode()
        yield b"[" * 10_000
        yield json.dumps(good | {"after": {"id": 9_004, "since": "no day", "note": "n" * 2_000_000}}).encode()

    def _event(self, key, value):
        topic = self._writer.events_topic
        return OutgoingRecord(topic=topic, key=f"ticket-{key}".encode(), value=value, headers=HEADERS, partition=1)


def letters(settings, group):
    """The dead letters of a group's topics, each with what its headers tell of its death."""
    for topic in group.topics:
        for record in read_range(settings, dead_letter_topic_of(topic, group.name)):
            told = {
                n.removeprefix(DEAD_LETTER_PREFIX): v.decode()
                for n, v in record.headers
                if n.startswith(DEAD_LETTER_PREFIX)
            }
            own = tuple((n, v) for n, v in record.headers if not n.startswith(DEAD_LETTER_PREFIX))
            yield record, told, own


def places(settings, topics):
    """Where the records with HEADERS are: by topic, partition and offset, key and value."""
    return {
        (r.topic, r.partition, r.offset): (r.key, r.value)
        for topic in topics
        for r in read_range(settings, topic)
        if r.headers == HEADERS
    }


def require_all_kept(settings, group, sent):
    """Every bad record is a dead letter, untouched and with its cause, and no other is."""
    found = {}
    for record, told, own in letters(settings, group):
        assert own == HEADERS
        assert told["group"] == group.name
        assert told["error"] in ("UndecodableRecord", "UnknownSchemaId")
        assert told["message"]
        assert int(told["attempts"]) == 1
        assert told["time"]
        found[told["topic"], int(told["partition"]), int(told["offset"])] = (record.key, record.value)
    assert found == sent
