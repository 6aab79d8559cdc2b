"""A finding: what was checked, the result, and what helps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


class Severity(StrEnum):
    """How serious a finding is.

    OK: nothing is wrong. WARNING: capture works, and something may go wrong. ERROR: capture does not work, or loses
    rows.

    Examples:
        >>> findings = diagnose_connector(rows, source=engine, client=client)
        >>> all(finding.severity is Severity.OK for finding in findings)
        True
    """

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        severity: How serious it is.
        check: What was checked.
        result: The result.
        remedy: The SQL or command that helps, if something is wrong.

    Examples:
        >>> for finding in diagnose_connector(rows, source=engine, client=client):
        ...     print(finding.severity, finding.check, finding.result, finding.remedy)
    """

    severity: Severity
    check: str
    result: str
    remedy: str = ""

    @classmethod
    def ok(cls, check: str, result: str) -> Finding:
        """All is well."""
        return cls(Severity.OK, check, result)

    @classmethod
    def warning(cls, check: str, result: str, remedy: str) -> Finding:
        """Capture works, and something may go wrong."""
        return cls(Severity.WARNING, check, result, remedy)

    @classmethod
    def error(cls, check: str, result: str, remedy: str) -> Finding:
        """Capture does not work, or loses rows."""
        return cls(Severity.ERROR, check, result, remedy)


def errors(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return those that keep a connector from working."""
    return tuple(finding for finding in findings if finding.severity is Severity.ERROR)


def size(count: int) -> str:
    """Write a number of bytes for people."""
    power = min(max(count.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    return f"{count / (1 << 10 * power):.{1 if power else 0}f} {_UNITS[power]}"
