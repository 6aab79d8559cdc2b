"""What Spark does with the tables of a store: the port. Each kind of store brings its own keeper."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self

from eventstore.schema_registry import RegisteredSchema
from projections.connections import Connections
from projections.declaring.columns import ColumnType
from projections.declaring.group import ProjectionGroup
from projections.logs.offsets import OffsetRange
from projections.logs.port import OpenLog
from projections.logs.set_aside import SetAside
from projections.spark.reading.inputs import Reduction
from projections.stores.comparison import Copies
from projections.stores.port import Laid, StoredTable, TablePlace
from projections.stores.runs import Run, RunState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from projections.spark.live.incremental import BatchReport
    from projections.spark.live.prepared import PreparedQueries


class Batches(Protocol):
    """The live batches of one run."""

    @property
    def environment(self) -> Connections:
        """What they work with."""

    @property
    def log(self) -> OpenLog:
        """What they read."""

    @property
    def group(self) -> ProjectionGroup:
        """Whose views they keep."""

    @property
    def run(self) -> Run:
        """The run, with our token on it."""

    @property
    def reduction(self) -> Reduction:
        """How they make rows of records, by the schemas known."""

    @property
    def tables(self) -> Sequence[Any]:
        """The places of the tables they keep."""

    def without(self, aside: SetAside) -> Self:
        """The same batches without records that are set aside; what they are is committed with the progress."""

    def with_schemas(self, registry: Mapping[int, RegisteredSchema]) -> Self:
        """The same batches; everything that depends on the known schemas is planned again."""

    def apply(self, offsets: OffsetRange) -> BatchReport:
        """Carry one range into the views, or raise and leave everything as it was."""

    def streams_with_gaps(self, place: Any) -> list[tuple[str, int]]:
        """The keys of streams of which the attempt that failed last lacks a version, and what each stands at."""


class Keeper(ABC, Generic[Laid]):
    """Loads, keeps and compares the tables of one store by Spark."""

    @abstractmethod
    def batches(
        self,
        log: OpenLog,
        group: ProjectionGroup,
        run: Run,
        layout: Laid,
        queries: PreparedQueries,
        *,
        views: bool = True,
    ) -> Batches:
        """The live batches of a run we hold, those of its tables alone without ``views``.

        ``log`` and ``queries`` are the caller's to close.
        """

    @abstractmethod
    def load(self, frame: DataFrame, table: StoredTable, *, rows: int) -> int:
        """Load rows into a table that has no readers yet; returns how many, of at most ``rows``."""

    @abstractmethod
    def empty(self, table: StoredTable) -> None:
        """Remove what a killed process loaded into a table."""

    @abstractmethod
    def stored(self, place: TablePlace, columns: Mapping[str, ColumnType], *, few: bool) -> DataFrame:
        """The rows of a table's state; ``few``, where the driver may have them all."""

    @abstractmethod
    def index(self, run: Run, layout: Laid, what: str, *, built: Mapping[str, Any]) -> None:
        """Give the loaded "tables" or "views" what batches find their rows by, and note it; KeyNotUnique."""

    @abstractmethod
    def finish(self, run: Run, layout: Laid) -> None:
        """Note that a generation is complete."""

    @abstractmethod
    def set_aside(
        self, run: Run, layout: Laid, aside: SetAside, *, late: DataFrame | None = None, rows: int = 0
    ) -> None:
        """Note the records that the first chunk of a build, of ``rows`` records, is folded without, late ones too."""

    @abstractmethod
    def noted(self, state: RunState, layout: Laid) -> SetAside:
        """The records that a generation was made without so far, under any holder."""

    @abstractmethod
    def copies(self, run: Run, layout: Laid) -> AbstractContextManager[Copies]:
        """Compare views of a run within the block: with their recomputation, or with another generation's layout."""
