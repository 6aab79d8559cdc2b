"""What can be wrong with a record: the kinds, in words, and the typed error of each.

What a group does with a record that cannot be read, its error strategy:

    fail          the run stops at its offset, nothing of the batch is applied (the default)
    dead-letter   the record goes, untouched, to the topic `<topic>.<group>.dead-letter`, with its cause in headers
    skip          it stays where it is

With the last two, the batch goes on without it, and its place and cause are stored with the state, in the transaction
that moves the progress past it. A record behind a gap of its stream goes the same way: its stream stands still until
the gap is closed, and no other does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from cdc.changes.change_records import CAUSE, remedy_of, remedy_of_history
from projections.errors import UNPACK, RecordNotUnpacked, UndecodableRecord, UnknownSchemaId

BadRecords = Literal["fail", "dead-letter", "skip"]

NOT_UNPACKED: Final = "not_unpacked"
TOO_LATE: Final = "too_late"
FORGOTTEN: Final = "forgotten"
TIME_PREFIX: Final = "its time is "  # and the detail, at the end of the two messages
_ABSENT: Final = CAUSE.format(columns="{detail}", table="the table over topic {topic}")
NEVER_ASIDE: Final = ("truncated",)  # a view that went on without such a record would be wrong in every row
# What is wrong with a record, by kind of fault; also the message of its dead letter.
MESSAGES: Final[Mapping[str, str]] = {
    "not_avro": "the record is not Avro in Confluent framing (it starts with {detail})",
    "bad_avro": "the record's body does not fit its schema {detail}",
    "bad_cast": "the record cannot be read as its current type: {detail}",
    "field_missing": "the record has no value for a required field of {detail}",
    "other_source": "the record is of another service: {detail}",
    "bad_key": "the record's key {detail!r} is not stream@version",
    "bad_json": "the record is not a change event of the encoding that the table was declared with",
    "no_row": "the record is no row of a view: key and value are not JSON objects",
    "message": "a message of the log is no change of a row: read its topic with cdc.decode_message",
    "truncated": "the table was emptied (TRUNCATE), which no view follows: leave it out of what is published, and "
    "create the topic again",
    "bad_value": "column {detail} has a value that does not fit its declared type",
    "column_absent": _ABSENT,
    "column_absent_in_version": _ABSENT,
    "events_missing": "events of {topic}-{detail} are missing from the topic",
    "behind_a_gap": "the record comes after events of its stream that are not there: {detail} could not be applied",
    "no_time": "the event has no time: {detail} is missing",
    "no_source_time": "the change event does not say when its transaction was committed (source.ts_us)",
    "second_event": "{detail} has two of the stream's events, and its id is the key of one row",
    TOO_LATE: f"the event was recorded later than its stream promises with retain=: {TIME_PREFIX}{{detail}}",
    FORGOTTEN: "the rows of the event's time are forgotten: it repeats an event, or was delivered later than its stream"
    f" promises with retain=: {TIME_PREFIX}{{detail}}",
    NOT_UNPACKED: "the record is in a batch that cannot be unpacked: offsets {detail}",
    "unavailable": "a value of key {detail} is unavailable, and no record still in the topic holds it",
}


class Fault(NamedTuple):
    """What is wrong with one record."""

    topic: str
    partition: int
    offset: int
    kind: str
    detail: str

    @property
    def error(self) -> UndecodableRecord:
        """What a run that stops for it raises."""
        place = f"topic {self.topic}, partition {self.partition}, offset {self.offset}"
        return record_error(self.kind, self.detail, topic=self.topic, place=place)


def record_error(kind: str, detail: str, *, topic: str, place: str) -> UndecodableRecord:
    """The typed error of a fault."""
    if kind == "unknown_schema":
        return _unknown_schema(detail, place)
    kind_of_error = RecordNotUnpacked if kind == NOT_UNPACKED else UndecodableRecord
    return kind_of_error(
        MESSAGES[kind].format(detail=detail, topic=topic), remedy=_remedy(kind, detail, topic), place=place
    )


def _remedy(kind: str, detail: str, topic: str) -> str:
    columns, table = detail.split(", "), ".".join(topic.split(".")[-2:])
    if kind == "column_absent":
        return remedy_of(columns, table)
    if kind == "column_absent_in_version":
        return remedy_of_history(columns)
    if kind == NOT_UNPACKED:
        return UNPACK
    if kind == "field_missing":
        return "give the field a default; if another service fills the topic, read a topic of your own service"
    if kind in (TOO_LATE, FORGOTTEN):
        return "nothing has to be done; if too many come, give the stream a greater late or delivered in retain="
    if kind == "other_source":
        return "read a topic that your service alone fills (topic=), or leave out source= to take every source's events"
    return "nothing was applied: correct the producer or the declared type, then start again"


def _unknown_schema(detail: str, place: str) -> UnknownSchemaId:
    error = UnknownSchemaId(
        f"no registered schema of the table's events has the id of this record ({detail})",
        remedy="let its service publish its schemas (its outbox connector carries them), or declare the event",
        place=place,
    )
    error.schema_id = int(detail)
    return error
