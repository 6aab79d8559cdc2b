"""Every error of Factfold says what happened, what to do, and where.

FactfoldError                  message, remedy, place, code
├── WrongExpectedVersion       another writer was first: stream, expected, actual
├── Refused                    an aggregate's decision said no: reason
├── InvalidIdentifier          a stream, category, topic or type name out of its rules
├── WrongType                  an argument of a type that its parameter does not take
├── NotFound                   an event, a dead letter, a person or a page that is not there
├── InvalidArgument            a value that a program or a person gives cannot be taken
├── InvalidSettings            a setting that is unknown or has a wrong value
├── DeclarationError           a class is declared in a way that cannot work
│   └── UnsupportedFieldType   a field has no place in Avro
├── UnknownEventType           a stored type name no class claims
├── SchemaError
│   ├── UnknownSchema          a schema id the registry does not hold
│   ├── SchemaIncompatible     the registry refuses a schema that does not fit earlier ones: subject
│   ├── RegistryUnreachable    the schema registry did not answer
│   ├── InvalidSeal            a sealed personal value that was changed, or whose key was never here
│   ├── InvalidEventData       a value does not fit its field
│   └── NotFramedAvro          bytes without the Confluent frame, or a body that is not Avro
├── StreamDeleted              a stream that was deleted for good
├── StreamArchived             a stream that was archived, and takes no events until it is taken out again
├── EventIdTaken               an event id was appended before
├── UnsupportedBackend         a database or driver the store does not speak
├── StoreUnavailable           the database did not answer
│   └── OutcomeUnknown         it did not say whether an append took place: ids
├── KeysMissing                no key to seal or open personal fields with
├── StoreNotPrepared           tables or rights are missing, or the tables are of another release or cluster
├── InvalidExport              a file that is no export of events, or is damaged
├── ImportConflict             an event of a file does not fit what the store holds
├── ReplayRefused              a dead letter cannot be sent where it was asked to go
├── SubscriptionError
│   └── CheckpointMoved        another subscriber of the group advanced the checkpoint
├── RelayError                 the relay does not publish: records might come twice or be left out
└── KafkaError
    ├── BrokerUnreachable      no broker answered before the deadline
    ├── BrokerRefused          a broker answered no
    ├── TopicMissing           a topic does not exist
    ├── TopicMismatch          a topic exists with other partitions or policy
    ├── ForeignRecord          a topic holds a record of another service
    ├── ProducerFenced         another producer of the same transactional id was opened
    ├── OffsetsExpired         records a group had not read were deleted
    └── RecordsUnreadable      a batch of records that the client cannot unpack: offset
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from uuid import UUID


class FactfoldError(Exception):
    """A failure with one line of cause, one line of remedy, and the place it concerns.

    ``code`` names the cause for programs: `TopicMissing` has ``topic-missing``, unless a cause has a code of its own.
    ``final`` says that the same attempt fails again, however often it is made: deliveries do not repeat it.
    """

    final: bool = False

    def __init__(self, message: str, *, remedy: str, place: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.place = place
        self.code = code_of(type(self)) if code is None else code

    def __str__(self) -> str:
        lines = [self.message, f"  remedy: {self.remedy}"]
        if self.place is not None:
            lines.append(f"  at: {self.place}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        """Cross process borders whole: workers raise these inside Spark and process pools."""
        return (_rebuild, (type(self), self.__dict__.copy()))


def code_of(kind: type[FactfoldError]) -> str:
    """The code of a class's errors that have none of their own: its name in lower case, with hyphens."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()


def is_final(error: BaseException) -> bool:
    """Say whether the same attempt would fail again."""
    return isinstance(error, FactfoldError) and error.final


def _rebuild(kind: type[FactfoldError], attributes: dict[str, object]) -> FactfoldError:
    error = kind.__new__(kind)
    Exception.__init__(error, attributes["message"])
    error.__dict__.update(attributes)
    return error


_DECIDE_AGAIN: Final = "load the stream again, decide again, and append with the version you read"


class WrongExpectedVersion(FactfoldError):
    """The stream does not stand where the writer believed. `actual` is None for a stream without events."""

    def __init__(self, stream: str, expected: object, actual: int | None, *, remedy: str = _DECIDE_AGAIN) -> None:
        stands = "has no events" if actual is None else f"is at version {actual}"
        super().__init__(
            f"stream {stream!r} {stands}, the writer expected {expected}",
            remedy=remedy,
            place=stream,
        )
        self.stream = stream
        self.expected = expected
        self.actual = actual


class StreamDeleted(FactfoldError):
    """The stream was deleted, and takes no events any more."""

    final = True

    def __init__(self, stream: str) -> None:
        super().__init__(
            f"stream {stream!r} was deleted",
            remedy="begin a stream under another id: keys of the deleted one are never used again",
            place=stream,
        )
        self.stream = stream


class StreamArchived(FactfoldError):
    """The stream was archived: it is read as ever, and takes no events."""

    final = True

    def __init__(self, stream: str) -> None:
        super().__init__(
            f"stream {stream!r} is archived",
            remedy="unarchive_stream() if it has to go on, else begin another one",
            place=stream,
        )
        self.stream = stream


class Refused(FactfoldError):
    """An aggregate refused a command. `reason` is the sentence its author wrote."""

    def __init__(self, reason: str, *, place: str | None = None) -> None:
        super().__init__(reason, remedy="change the command or wait until the state allows it", place=place)
        self.reason = reason


class InvalidIdentifier(FactfoldError):
    """A name breaks the rules of its kind."""

    final = True


class InvalidSettings(FactfoldError):
    """A setting that is unknown or has a wrong value. The value is never shown, since it may be secret."""


class NotFound(FactfoldError):
    """What was named or looked for is not there: an event, a dead letter, a person or a page."""


class WrongType(FactfoldError, TypeError):
    """An argument is or holds a value of a type that its parameter does not take."""

    final = True


class InvalidArgument(FactfoldError):
    """A value that a program or a person gives cannot be taken: the same call fails again."""

    final = True


class DeclarationError(FactfoldError):
    """A class is declared in a way that cannot work. Raised while the class is being defined."""

    final = True


class UnsupportedFieldType(DeclarationError):
    """A field's type has no place in Avro."""


class UnknownEventType(FactfoldError):
    """A stored event carries a type name that no class claims."""


class SchemaError(FactfoldError):
    """Schemas and bytes that do not fit together."""


class UnknownSchema(SchemaError):
    """A schema id that the registry does not hold."""


class SchemaIncompatible(SchemaError):
    """A new schema could not read what is stored, or breaks its registry's rule. Nothing was appended."""

    final = True

    def __init__(self, message: str, *, remedy: str, place: str | None = None, subject: str = "") -> None:
        super().__init__(message, remedy=remedy, place=place)
        self.subject = subject


class RegistryUnreachable(SchemaError):
    """The schema registry did not answer before the deadline. Nothing was appended."""


class InvalidSeal(SchemaError):
    """A sealed personal value was changed, or its key was never in this key store."""


class InvalidEventData(SchemaError):
    """A value does not fit the type of its field."""

    final = True


class NotFramedAvro(SchemaError):
    """Bytes without the Confluent frame, or a body that is not Avro of the named schema."""


class EventIdTaken(FactfoldError):
    """An event id names one event for ever and was appended before."""

    final = True


class UnsupportedBackend(FactfoldError):
    """A database or driver the store does not speak."""

    final = True


class StoreUnavailable(FactfoldError):
    """The database of the store did not answer."""


class OutcomeUnknown(StoreUnavailable):
    """The connection was lost during an append, and the database stayed away. `ids` are those of its events."""

    def __init__(self, message: str, *, remedy: str, place: str | None = None, ids: tuple[UUID, ...] = ()) -> None:
        super().__init__(message, remedy=remedy, place=place)
        self.ids = ids


class KeysMissing(FactfoldError):
    """There is no key to seal or open personal fields with."""


class StoreNotPrepared(FactfoldError):
    """The database answers, but tables or rights are missing, or the tables are of another release or cluster."""


class InvalidExport(FactfoldError):
    """A file is no export of events, or it is damaged. The place names the line or row."""


class ImportConflict(FactfoldError):
    """An event of a file does not fit what the store holds. Nothing of its batch was stored."""


class ReplayRefused(FactfoldError):
    """A dead letter cannot be sent where it was asked to go."""


class SubscriptionError(FactfoldError):
    """A subscription ended. What it had not acknowledged arrives again."""


class CheckpointMoved(SubscriptionError):
    """Another subscriber of the same group advanced the checkpoint."""


class RelayError(FactfoldError):
    """The relay does not publish, because records might come twice or be left out."""


class KafkaError(FactfoldError):
    """Kafka did not do what was asked."""


class BrokerUnreachable(KafkaError):
    """No broker answered before the deadline."""


class BrokerRefused(KafkaError):
    """A broker answered, and the answer was no."""


class TopicMissing(KafkaError):
    """A topic does not exist."""


class TopicMismatch(KafkaError):
    """A topic exists with another partition count or cleanup policy than asked for."""


class ForeignRecord(KafkaError):
    """A topic holds a record that another service wrote, or another store."""


class ProducerFenced(KafkaError):
    """Another producer of the same transactional id was opened. Nothing of this one's is accepted any more."""


class OffsetsExpired(KafkaError):
    """Records that a group had not read yet were deleted from their topic."""


class RecordsUnreadable(KafkaError):
    """A batch of records, the first at `offset`, unpacks to more than the client takes, or is damaged."""

    def __init__(self, message: str, *, remedy: str, topic: str, partition: int, offset: int) -> None:
        super().__init__(message, remedy=remedy, place=f"{topic}[{partition}]@{offset}")
        self.topic = topic
        self.partition = partition
        self.offset = offset
