"""Histories: every version of a table's rows, with the time from which and until which it was valid.

    customer_history = history("customer_history", customers)

A row as of any time is one query: valid_from <= t AND (valid_to > t OR valid_to IS NULL). Nothing is closed: a change
that comes late splits the version that it falls into.
"""

from __future__ import annotations

from collections.abc import Iterable

from projections.declaring.binding import bind
from projections.declaring.naming import checked_identifier, parameters
from projections.declaring.streams import EventVersions
from projections.declaring.tables import ChangelogTable, EventTable, Table, VersionTable
from projections.declaring.timing.promises import Lasting, exact
from projections.declaring.timing.validity import CURRENT, Validity
from projections.declaring.view_topics import ViewTopic
from projections.declaring.views import View
from projections.errors import InvalidDefinition


def history(
    name: str,
    table: Table,
    *,
    keep: Lasting | None = None,
    named: str = "valid",
    topic: str | ViewTopic | None = None,
) -> View:
    """Declare a view of every version of a table's rows.

    Of a captured table, a version begins with the commit of its transaction, and a deletion ends it. Of a table folded
    from events, a version begins with each event that sets a column, when the event was recorded. The columns are the
    table's, ``valid_from`` (null for a row of a snapshot), ``valid_to`` (exclusive, null for the current version) and
    ``is_current``.

    Args:
        name: The name of the view.
        table: The table.
        keep: How long a version stays after it ended, measured by the newest change of its row.
        named: The prefix of the two times.
        topic: A topic that gets the view's rows too.

    Raises:
        InvalidDefinition: The table has no history.

    Examples:
        >>> customer_history = history("customer_history", customers, keep="365 days")
    """
    from projections.spark.timing.windowing import History  # needs the extra spark

    checked_identifier(name, what="view")
    checked_identifier(named, what="validity")
    versions = _versions(name, table)
    validity = Validity(f"{named}_from", f"{named}_to", _keep_micros(keep))
    _require_apart(name, versions.columns, validity)
    role = versions.name or f"{name}_versions"
    function = History(validity, versions.key, parameters(role))
    return bind(name, function, {role: versions}, key=(validity.start,), by=versions.key, topic=topic)


def _versions(name: str, table: Table) -> VersionTable | EventVersions:
    if isinstance(table, Table) and table.condition is not None:
        raise InvalidDefinition(
            f"history {name!r} is of some rows of a table: {table.condition}",
            remedy="take the whole table, and filter the history in a view: what left the condition ended a version",
        )
    match table:
        case VersionTable():
            return table
        case ChangelogTable():
            return table.versions()
        case EventTable() if table.setters is not None:
            return EventVersions.of(table)
        case EventTable():
            raise InvalidDefinition(
                f"history {name!r} is of a table that evolve folds, whose states between events are not stored",
                remedy=f"declare the columns: Table.from_events({table.aggregate.__name__}, …, columns={{…}})",
            )
    raise InvalidDefinition(
        f"history {name!r} is of {_described(table)}, whose rows have no time at which they changed",
        remedy="give a captured table, or one of Table.from_events with the events of one aggregate: what it reads",
    )


def _described(table: object) -> str:
    return f"view {table.name!r}" if isinstance(table, View) else type(table).__name__


def _keep_micros(keep: Lasting | None) -> int | None:
    if keep is None:
        return None
    micros = exact(keep, what="keep")
    if micros > 0:
        return micros
    raise InvalidDefinition(f"keep {keep!r} is not positive", remedy="give keep a length above zero, or leave it out")


def _require_apart(name: str, columns: Iterable[str], validity: Validity) -> None:
    taken = {column.lower(): column for column in columns}
    for column in (validity.start, validity.end, CURRENT):
        if column in taken:
            raise InvalidDefinition(
                f"history {name!r} would have two columns {taken[column]!r}",
                remedy="leave the column out of the table"
                if column == CURRENT
                else "name the times otherwise: named='known' gives known_from and known_to",
                place=f"view {name}",
            )
