"""Waiting until a place of a source's log has come through the connector and into a state."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from cdc.comparing.report import StateTable
from cdc.errors import ConnectorTimeout
from cdc.source.catalogue import typed_errors
from cdc.source.grants import mark_source
from eventstore.kafka.admin import OffsetReader

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cdc.connectors.postgres import PostgresSource
    from eventstore.settings import Settings

_LOOK_SECONDS: Final = 0.1
_MARK_SECONDS: Final = 0.5
_HERE: Final = "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint"
_CONFIRMED: Final = (
    "SELECT (confirmed_flush_lsn - '0/0'::pg_lsn)::bigint FROM pg_replication_slots WHERE slot_name = %s"
)


class Passage(AbstractContextManager["Passage"]):
    """The way from the source's log to the states; ``patience`` bounds each wait, in seconds."""

    def __init__(self, engine: Engine, source: PostgresSource, settings: Settings, *, patience: float) -> None:
        self._engine = engine
        self._source = source
        self._patience = patience
        self._offsets = OffsetReader(settings)

    def here(self) -> int:
        """Return a place in the source's log behind every commit that a query has seen by now."""
        with typed_errors(self._engine), self._engine.connect() as connection:
            return int(connection.exec_driver_sql(_HERE).scalar_one())

    def wait(self, state: StateTable, place: int) -> None:
        """Wait until a state has everything that was committed before a place; ConnectorTimeout."""
        deadline = time.monotonic() + self._patience
        self._until(lambda: self._confirmed() >= place, deadline, self._not_captured)
        # Not the last committed offset: each partition learns of a commit by itself.
        ends = self._offsets.end_offsets([state.topic], committed=False)[state.topic]
        self._until(lambda: state.reached(ends), deadline, lambda: self._not_applied(state))

    def ends(self, topic: str) -> dict[int, int]:
        """Return the offset behind the last record of each partition."""
        return dict(self._offsets.end_offsets([topic])[topic])

    def __exit__(self, *_: object) -> None:
        self._offsets.close()

    def _until(self, there: Callable[[], bool], deadline: float, late: Callable[[], ConnectorTimeout]) -> None:
        marked = 0.0
        while not there():
            if time.monotonic() >= deadline:
                raise late()
            if time.monotonic() - marked > _MARK_SECONDS:
                mark_source(self._engine)
                marked = time.monotonic()
            time.sleep(_LOOK_SECONDS)

    def _confirmed(self) -> int:
        with typed_errors(self._engine), self._engine.connect() as connection:
            lsn = connection.exec_driver_sql(_CONFIRMED, (self._source.slot,)).scalar()
        return 0 if lsn is None else int(lsn)

    def _not_captured(self) -> ConnectorTimeout:
        return ConnectorTimeout(
            f"connector {self._source.name!r} did not come to the source's present in {self._patience:g} s",
            remedy=f"see whether it runs (factfold cdc status {self._source.name}), or wait longer: --timeout",
            place=f"slot {self._source.slot}",
            code="state-behind",
        )

    def _not_applied(self, state: StateTable) -> ConnectorTimeout:
        return ConnectorTimeout(
            f"the state of {state.topic} did not come to the end of its topic in {self._patience:g} s",
            remedy="let the group's runner run (factfold projections run), or wait longer: --timeout",
            place=state.place,
            code="state-behind",
        )
