"""What can go wrong in a projection.

::

    FactfoldError
    └── ProjectionError
        ├── InvalidDefinition        a table or view that cannot work as declared
        │   └── UnknownColumn        a column that the table or DataFrame does not have
        ├── UndecodableRecord        a record that its decoder refuses, with topic, partition and offset
        │   └── UnknownSchemaId      an Avro record whose schema id the registry does not hold
        ├── OffsetsLost              offsets the run still needs are no longer in the topic
        ├── RunAlreadyActive         another runner holds this run
        ├── RunSuperseded            another runner has taken this run over meanwhile
        ├── StagingLost              what a batch had staged is gone before its commit
        ├── StagingLost              what a batch had staged is gone before its commit
        ├── NoServingGeneration      nothing has been built yet
        ├── DefinitionChanged        the definition differs from the one the generation was built by
        ├── KeyNotUnique             a view function returned a key twice, or null
        ├── TableStoreUnavailable    the views' database cannot be reached
        ├── ViewInUse                a view cannot be replaced: a query holds it, or something depends on it
        └── SparkFailed              anything else that Spark reports, shortened
"""

from __future__ import annotations

from eventstore.errors import FactfoldError


class ProjectionError(FactfoldError):
    """Anything a projection refuses or fails with."""


class InvalidDefinition(ProjectionError):
    """A table, view or group that cannot work as declared."""


class UnknownColumn(InvalidDefinition):
    """A column that the table or DataFrame does not have."""


class UndecodableRecord(ProjectionError):
    """A record that its decoder refuses; the place names topic, partition and offset."""


class UnknownSchemaId(UndecodableRecord):
    """An Avro record whose schema id the registry does not hold."""


class OffsetsLost(ProjectionError):
    """Offsets that the run still needs are no longer in the topic."""


class RunAlreadyActive(ProjectionError):
    """Another runner holds this run."""


class RunSuperseded(ProjectionError):
    """Another runner took this run over; nothing of this batch was written."""


class StagingLost(ProjectionError):
    """What a batch had staged was gone before its commit; nothing was written."""


class NoServingGeneration(ProjectionError):
    """The projection has not been built yet."""


class DefinitionChanged(ProjectionError):
    """The definition differs from the one the serving generation was built by."""


class KeyNotUnique(ProjectionError):
    """A view function returned one key twice, or a null key."""


class TableStoreUnavailable(ProjectionError):
    """The database of the views cannot be reached."""


class ViewInUse(ProjectionError):
    """A stable view cannot be replaced: a query holds it, or another object depends on it."""


class SparkFailed(ProjectionError):
    """Spark refused or failed the work; the message is Spark's own, shortened."""
