"""What can go wrong in a projection.

::

    FactfoldError
    └── ProjectionError
        ├── InvalidDefinition        a table or view that cannot work as declared
        │   ├── UnknownColumn        a column that the table or DataFrame does not have
        │   ├── UnknownField         a field that no event of the source has
        │   └── InvalidPredicate     a comparison that cannot be made
        ├── UndecodableRecord        a record that its decoder refuses, with topic, partition and offset
        │   ├── EventsMissing        a stream lacks a version, and nothing after it can be applied
        │   ├── RecordNotUnpacked    a batch of records that cannot be unpacked
        │   └── UnknownSchemaId      an Avro record whose schema id the registry does not hold
        ├── TooManyBadRecords        more bad records than a run sets aside
        ├── HistoryNotRetained       a topic may lose the changes that a table's versions are read from
        ├── ErasureWaiting           the views still show data of an erased person
        ├── EndNotKnown              a rebuild would end before what is served: marks of transactions are missing
        ├── OlderThanHorizon         a change may be of a row that was deleted too long ago to be known
        ├── RowsForgotten            an event was deleted, and rows of its time may be forgotten
        ├── OffsetsLost              offsets the run still needs are no longer in the topic
        ├── RunAlreadyActive         another runner holds this run, or another router its Spark checkpoint
        ├── RunSuperseded            another runner has taken this run over meanwhile
        ├── StagingLost              the staged rows of a batch were lost before its commit
        ├── RunRetired               the generation that a runner keeps no longer serves: another one does
        ├── RunPaused                a run that is to catch up was asked to stand still
        ├── NoServingGeneration      nothing has been built yet
        ├── GenerationMissing        no generation that could be switched to, compared or dropped
        ├── NotComparable            two generations cannot be brought to the same offsets
        ├── DefinitionChanged        the definition differs from the one the generation was built by
        ├── PatternTooWide           a pattern's conditions have seen too many different values to go on
        ├── KeyNotUnique             a view function returned a key twice, or null
        ├── TableStoreUnavailable    the views' database cannot be reached
        ├── RightMissing             the role of the views' database may not do what is needed
        ├── UnsupportedValue         a value that the views' database cannot hold
        ├── UnsupportedMaster        a Spark whose executors cannot reach the views' database
        ├── ViewInUse                a view cannot be replaced: a query holds it, or something depends on it
        ├── CheckpointUnusable       a checkpoint folder that cannot be made, or that others may read
        ├── ArchiveUnusable          an archive that cannot be opened, or that others may read
        ├── LakeUnusable             a view's Delta table that was deleted, or that holds rows of others
        ├── ArchiveMoved             another archiver has appended to this archive meanwhile
        ├── ArchiveDiffers           an archive does not hold what its topic holds
        ├── ClassArchiveNotMade      the archive of Spark's classes cannot be written
        ├── LoadClosed               a task would write rows of a batch that has ended
        ├── SessionInUse             the process has a Spark session already, and one of its own is needed
        ├── TooFewSlots              a router has fewer slots than real-time mode needs
        ├── RealTimeRefused          Spark does not run this query in real-time mode
        ├── RouterGaveUp             a router failed too often in a row
        ├── RunnerGaveUp             a runner failed too often in a row
        ├── NotCaughtUp              a run did not reach the required end within the time
        ├── NotYetApplied            an event is not in the views within the time it was waited for
        └── SparkFailed              anything else that Spark reports, shortened
            ├── CodeFailed           an aggregate or a view's function raised, or a value does not fit its type
            └── SparkStopped            Spark's JVM no longer answers
"""

from __future__ import annotations

from eventstore.errors import FactfoldError, KeysMissing


class ProjectionError(FactfoldError):
    """The base class of the errors of projections."""


class InvalidDefinition(ProjectionError):
    """A table, view or group that cannot work as declared."""


class UnknownColumn(InvalidDefinition):
    """A column that the table or DataFrame does not have."""


class UnknownField(InvalidDefinition):
    """A field that no event of the source has."""


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


class EndNotKnown(ProjectionError):
    """A rebuild would end before what is served: where transactions of the source end is not known that far."""


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


class ErasureWaiting(ProjectionError):
    """A person was erased, and the views do not show it yet: they differ from what can be recomputed."""


class TooManyBadRecords(ProjectionError):
    """A run tolerates bad records, and there are more of them than a list of exceptions can hold."""


class HistoryNotRetained(ProjectionError):
    """A topic that is compacted would lose the changes that a table's versions are read from."""


class RunAlreadyActive(ProjectionError):
    """Another runner holds this run."""


class RunSuperseded(ProjectionError):
    """Another runner took this run over. Nothing of this batch was written."""


class StagingLost(ProjectionError):
    """The staged rows of a batch were missing before its commit. Nothing was written."""


class RunRetired(ProjectionError):
    """The generation that a runner keeps no longer serves: a cut-over or a rollback has let another one serve."""


class RunPaused(ProjectionError):
    """A run that is to catch up was asked to stand still."""


class NoServingGeneration(ProjectionError):
    """The projection has not been built yet."""


class GenerationMissing(ProjectionError):
    """There is no generation that could be switched to, compared or dropped as asked."""


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


class RightMissing(ProjectionError):
    """The role that the views' database is reached by may not do what is needed. Waiting does not help."""


class LoadClosed(ProjectionError):
    """A task would write rows of a batch that has ended."""


class UnsupportedValue(ProjectionError):
    """A value that the database of the views cannot hold as it is."""


def unsupported_value(message: str, *, place: str | None = None) -> UnsupportedValue:
    """The error of a value that was refused while rows were written."""
    remedy = "correct the value at its source, or leave the column out of tables and views"
    return UnsupportedValue(message, remedy=remedy, place=place)


class UnsupportedMaster(ProjectionError):
    """A Spark master whose executors cannot reach the database of the views."""


class ViewInUse(ProjectionError):
    """A stable view cannot be replaced: a query holds it, or another object depends on it."""


class CheckpointUnusable(ProjectionError):
    """A checkpoint folder that cannot be made, or that others than its owner may read."""


class ArchiveUnusable(ProjectionError):
    """An archive that cannot be opened or made, or whose folder others than its owner may read."""


class LakeUnusable(ProjectionError):
    """A Delta table that a view fills was deleted, holds rows of others, or cannot be reached without Delta Lake."""


class ArchiveMoved(ProjectionError):
    """Another archiver has appended to this topic's archive meanwhile. Nothing of this append was stored."""


class ArchiveDiffers(ProjectionError):
    """A topic's archive does not hold what the topic holds, or not from its beginning."""


class ClassArchiveNotMade(ProjectionError):
    """The archive of Spark's classes cannot be written. Spark starts without one."""


class SessionInUse(ProjectionError):
    """The process has a Spark session already, and the work needs one of its own."""


class TooFewSlots(ProjectionError):
    """A router has fewer slots than real-time mode needs. With too few nothing fails, records just wait."""


class RealTimeRefused(ProjectionError):
    """Spark does not run this query in real-time mode."""


class RouterGaveUp(ProjectionError):
    """A router failed more often in a row than its restarts allow. The message holds the last cause."""


class RunnerGaveUp(ProjectionError):
    """A runner failed more often in a row than its restarts allow. The message holds the last cause."""


class OlderThanHorizon(ProjectionError):
    """A change may be of a row that was deleted so long ago that nothing is known of it any more."""


class RowsForgotten(ProjectionError):
    """An event was deleted, and what its row has become cannot be taken back: rows of that time are forgotten."""


class NotYetApplied(ProjectionError):
    """An event is not in the views within the time it was waited for. ``version`` is what its stream stands at."""

    version: int | None = None


class NotCaughtUp(ProjectionError):
    """A run did not come to the offsets it was to reach within the time. What it applied stays."""


class SparkFailed(ProjectionError):
    """Spark refused or failed the work. The message is Spark's own, shortened."""


class CodeFailed(SparkFailed):
    """Code that Spark runs raised, or a value does not fit its type. Tried again, it would be so again."""


class SparkStopped(SparkFailed):
    """Spark's JVM no longer answers."""
