"""Every error of cdc says what happened, what to do, and where.

CdcError                        message, remedy, place
├── InvalidConnector            a connector's declaration cannot work
│   └── UnsupportedEncoding     values a reader could not tell apart without a schema
├── SourceNotReady              the database lacks a role, a right, a publication or a setting
├── ConnectUnavailable          no Connect worker answered before the deadline
├── ConnectRejected             a worker answered no: status, Connect's own words
│   └── UnknownConnector        the worker knows no connector of that name
├── ConnectorFailed             the connector or a task stands FAILED: trace
├── RestartsExhausted           a supervisor gave connectors up: failures
├── ConnectorTimeout            something did not happen before the deadline, and may happen yet
├── SnapshotFailed              some tables could not be read again: which, and why
└── UndecodableChange           a record that is no change event of its table
"""

from __future__ import annotations

from collections.abc import Mapping

from eventstore.errors import FactfoldError


class CdcError(FactfoldError):
    """A failure on the way from a row change to its changelog topic."""


class InvalidConnector(CdcError):
    """A connector is declared in a way that cannot work. Raised while it is being declared."""


class UnsupportedEncoding(InvalidConnector):
    """Values whose type a reader could not know: an encoding that needs a schema, without one."""


class SourceNotReady(CdcError):
    """The source database lacks a role, a right, a publication or a setting that the connector needs."""


class ConnectUnavailable(CdcError):
    """No Kafka Connect worker answered before the deadline."""


class ConnectRejected(CdcError):
    """A worker answered, and the answer was no. `status` is the HTTP status."""

    def __init__(self, message: str, *, remedy: str, place: str | None = None, status: int) -> None:
        super().__init__(message, remedy=remedy, place=place)
        self.status = status


class UnknownConnector(ConnectRejected):
    """The worker knows no connector of that name."""


class ConnectorFailed(CdcError):
    """A connector or one of its tasks stands FAILED. `trace` holds the causes, the root last."""

    def __init__(self, message: str, *, remedy: str, place: str | None = None, trace: tuple[str, ...] = ()) -> None:
        super().__init__(message, remedy=remedy, place=place)
        self.trace = trace


class RestartsExhausted(CdcError):
    """A supervisor restarted connectors as often as it may. `failures` are their last ones."""

    def __init__(self, message: str, *, remedy: str, failures: tuple[ConnectorFailed, ...]) -> None:
        super().__init__(message, remedy=remedy)
        self.failures = failures


class ConnectorTimeout(CdcError):
    """A connector or a state was not as far before the deadline as it was to be. It may go on yet."""


class SnapshotFailed(CdcError):
    """A snapshot ended without having read some tables. `tables` gives for each what Debezium said of it."""

    def __init__(
        self, message: str, *, remedy: str, place: str | None = None, code: str | None = None, tables: Mapping[str, str]
    ) -> None:
        super().__init__(message, remedy=remedy, place=place, code=code)
        self.tables = tables


class UndecodableChange(CdcError):
    """A record is not a change event of the table it is read as."""
