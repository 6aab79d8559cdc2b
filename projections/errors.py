"""What can go wrong in a projection.

::

    FactfoldError
    └── ProjectionError
        ├── InvalidDefinition        a table or view that cannot work as declared
        │   └── InvalidPredicate     a comparison that cannot be made
        ├── UndecodableRecord        a record that its decoder refuses, with topic, partition and offset
        │   ├── EventsMissing        a stream lacks a version, and nothing after it can be applied
        │   ├── RecordNotUnpacked    a batch of records that cannot be unpacked
        │   └── UnknownSchemaId      an Avro record whose schema id the registry does not hold
        ├── OffsetsLost              offsets the run still needs are no longer in the topic
        ├── RunAlreadyActive         another runner holds this run, or another router its Spark checkpoint
        ├── StagingLost              the staged rows of a batch were lost before its commit
        ├── RunRetired               the generation that a runner keeps no longer serves: another one does
        ├── NoServingGeneration      nothing has been built yet
        ├── NotComparable            two generations cannot be brought to the same offsets
        ├── DefinitionChanged        the definition differs from the one the generation was built by
        ├── PatternTooWide           a pattern's conditions have seen too many different values to go on
        ├── KeyNotUnique             a view function returned a key twice, or null
        ├── TableStoreUnavailable    the views' database cannot be reached
        ├── UnsupportedValue         a value that the views' database cannot hold
        ├── ViewInUse                a view cannot be replaced: a query holds it, or something depends on it
        ├── RealTimeRefused          Spark does not run this query in real-time mode
        ├── NotYetApplied            an event is not in the views within the time it was waited for
        └── SparkFailed              anything else that Spark reports, shortened
            ├── CodeFailed           an aggregate or a view's function raised, or a value does not fit its type
            └── SparkStopped            Spark's JVM no longer answers
"""

from __future__ import annotations

from typing import Final

from eventstore import restarts
from eventstore.errors import FactfoldError, KeysMissing


class ProjectionError(FactfoldError):
    """The base class of the errors of projections."""


class InvalidDefinition(ProjectionError):
    """A table, view or group that cannot work as declared."""


class InvalidPredicate(InvalidDefinition):
    """A comparison that cannot be made, or a predicate used as a truth value."""


class UndecodableRecord(ProjectionError):
    """A record that its decoder refuses. The place names topic, partition and offset."""


class UnknownSchemaId(UndecodableRecord):
    """An Avro record whose schema id the registry does not hold."""

    schema_id: int = 0


class EventsMissing(UndecodableRecord):
    """A stream lacks a version. Nothing after it can be applied."""


class RecordNotUnpacked(UndecodableRecord):
    """A batch of records that a client cannot unpack: too large when unpacked, or damaged.

    The batch has the offsets from ``first`` up to ``end``. A client that does not say them leaves them None.
    """

    topic: str = ""
    partition: int = 0
    first: int | None = None
    end: int | None = None

    @property
    def offsets(self) -> str:
        """The offsets in words, as far as they are known."""
        if self.first is None:
            return ""
        return str(self.first) if self.end is None or self.end - self.first == 1 else f"{self.first} to {self.end - 1}"


UNPACK = (
    "if they are meant to be so large, raise receive.message.max.bytes in the Kafka settings' extra_librdkafka, and "
    "Spark's memory; else let the group pass over them by bad_records='skip' or 'dead-letter'"
)


def not_unpacked(
    why: str, *, topic: str, partition: int, offset: int | None = None, end: int | None = None
) -> RecordNotUnpacked:
    """The error of such a batch, by its first offset and the one after it where they are known."""
    error = RecordNotUnpacked(f"records of the topic cannot be unpacked: {why}", remedy=UNPACK)
    error.topic, error.partition, error.first, error.end = topic, partition, offset, end
    several = "offsets" if " to " in error.offsets else "offset"
    error.place = f"topic {topic}, partition {partition}" + (f", {several} {error.offsets}" if error.offsets else "")
    return error


class OffsetsLost(ProjectionError):
    """Offsets that the run still needs are no longer in the topic."""


def offsets_lost(place: str | None) -> OffsetsLost:
    """The error of a read whose records are deleted."""
    return OffsetsLost(
        "the topic no longer holds records that this run still needs",
        remedy="rebuild the projection. Give the topic a longer retention than a run may stand still",
        place=place,
    )


def keys_missing(place: str) -> KeysMissing:
    """The error of personal columns without the keys to open them."""
    return KeysMissing(
        "the views have personal columns, and there are no keys here to open them",
        remedy="give the keys of the store: Environment.open(…, keys=SqlKeyStore(…)), or --keys-url and --master-keys",
        place=place,
    )


class RunAlreadyActive(ProjectionError):
    """Another runner holds this run."""


class StagingLost(ProjectionError):
    """The staged rows of a batch were missing before its commit. Nothing was written."""


class RunRetired(ProjectionError):
    """The generation that a runner keeps no longer serves: a cut-over or a rollback has let another one serve."""


class NoServingGeneration(ProjectionError):
    """The projection has not been built yet."""


class NotComparable(ProjectionError):
    """Two generations cannot be brought to the same offsets, or have no views in common."""


class DefinitionChanged(ProjectionError):
    """The definition differs from the one the serving generation was built by."""


class KeyNotUnique(ProjectionError):
    """A view function returned one key twice, or a null key."""


class PatternTooWide(ProjectionError):
    """What a pattern's conditions look at differs too often at one row: each set of values is followed by itself."""


def pattern_too_wide(message: str, *, place: str) -> PatternTooWide:
    """The error of such a pattern, for every matcher."""
    return PatternTooWide(
        message, remedy="let conditions look at fewer earlier rows, or give the pattern a shorter within", place=place
    )


class TableStoreUnavailable(ProjectionError):
    """The database of the views cannot be reached."""


class UnsupportedValue(ProjectionError):
    """A value that the database of the views cannot hold as it is."""


def unsupported_value(message: str, *, place: str | None = None) -> UnsupportedValue:
    """The error of a value that was refused while rows were written."""
    remedy = "correct the value at its source, or leave the column out of tables and views"
    return UnsupportedValue(message, remedy=remedy, place=place)


class ViewInUse(ProjectionError):
    """A stable view cannot be replaced: a query holds it, or another object depends on it."""


class RealTimeRefused(ProjectionError):
    """Spark does not run this query in real-time mode."""


class NotYetApplied(ProjectionError):
    """An event is not in the views within the time it was waited for. ``version`` is what its stream stands at."""

    version: int | None = None


class SparkFailed(ProjectionError):
    """Spark refused or failed the work. The message is Spark's own, shortened."""


class CodeFailed(SparkFailed):
    """Code that Spark runs raised, or a value does not fit its type. Tried again, it would be so again."""


class SparkStopped(SparkFailed):
    """Spark's JVM no longer answers."""


# What Spark says of a database or a broker in its own words is SparkFailed.
PASSING: Final = (*restarts.PASSING, SparkFailed, StagingLost, TableStoreUnavailable)


def passes(error: Exception) -> bool:
    """Whether a failure may be over when the same is tried again.

    Nothing brings Spark's JVM back in this process, and code that raises on a record raises on it again.
    """
    return isinstance(error, PASSING) and not isinstance(error, SparkStopped | CodeFailed)
