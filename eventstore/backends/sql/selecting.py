"""A selection of events as conditions of a query, so that the database leaves out the others."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Table

from eventstore.inspection.selection import Selection


def conditions(events: Table, selection: Selection) -> list[ColumnElement[bool]]:
    """Return the conditions on the table of events; none selects every event."""
    columns = events.c
    listed = [
        (columns.stream, selection.streams),
        (columns.category, selection.categories),
        (columns.type, selection.types),
    ]
    clauses: list[ColumnElement[bool]] = [column.in_(values) for column, values in listed if values]
    if selection.since is not None:
        clauses.append(columns.time >= selection.since)
    if selection.until is not None:
        clauses.append(columns.time <= selection.until)
    if selection.from_version is not None:
        clauses.append(columns.version >= selection.from_version)
    if selection.to_version is not None:
        clauses.append(columns.version <= selection.to_version)
    if selection.correlation_id is not None:
        clauses.append(columns.correlation_id == selection.correlation_id)
    return clauses
