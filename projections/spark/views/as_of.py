"""The stream-table join: each row of a stream with the version of another row that was valid at its event time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from projections.errors import InvalidDefinition
from projections.planning.plans import EVENT_TIME, OF_KEY, OF_TABLE

Taken = Mapping[str, str] | Sequence[str]


def join_versions(
    stream: DataFrame,
    versions: DataFrame,
    *,
    on: str,
    how: Literal["inner", "left"] = "inner",
    take: Taken | None = None,
) -> DataFrame:
    """Join a stream's rows with the version that was valid at each row's event time.

    For a view's function, with its own parameters. A version is valid from its commit, included, to the next one's.

    Args:
        stream: The rows of the stream.
        versions: The versions, made by `Table.versions_of`.
        on: The reference that the view declares to the versions.
        how: With ``left``, a row without a valid version stays, with nulls.
        take: Columns of the version for the result (``["credit_score"]``), or new names (``{"payer_score":
            "credit_score"}``).

    Raises:
        InvalidDefinition: The join cannot work, or a column is missing. Raised when the view is planned.

    Examples:
        >>> join_versions(payments, customers, on="customer_id", take=["credit_score"])
    """
    _require_how(how)
    (table, key), time = _identity(versions), _time_of(stream)
    _require_column(stream, on)
    taken = {c: c for c in versions.columns if c not in (key, "_valid")} if take is None else _named(take)
    _require_taken(taken, stream, versions, table)
    valid = F.col("_valid")
    right = versions.select(
        valid["key"].alias("_key"), valid["since"].alias("_since"), valid["until"].alias("_until"),
        *(F.col(source).alias(name) for name, source in taken.items()),
    )  # fmt: skip
    at = F.unix_micros(F.col(time))
    matches = (F.col(on) == F.col("_key")) & (F.col("_since") <= at) & (at < F.col("_until"))
    return stream.join(right, matches, how).select(*stream.columns, *taken)


def _require_how(how: str) -> None:
    if how not in ("inner", "left"):
        raise InvalidDefinition(
            f"join_versions cannot join {how!r}",
            remedy="use how='inner' or how='left': a stream's row has at most one version, a version no row of its own",
        )


def _identity(versions: DataFrame) -> tuple[str, str]:
    """The name by which the view knows the table whose versions these are, and the name of its key."""
    for column in versions.schema.fields:
        if OF_TABLE in column.metadata:
            return column.metadata[OF_TABLE], column.metadata[OF_KEY]
    raise InvalidDefinition(
        f"join_versions was given a table without versions. Its columns are: {', '.join(versions.columns)}",
        remedy="declare it with Table.versions_of(…) and pass the view's parameter as it is, choosing columns by take",
    )


def _time_of(stream: DataFrame) -> str:
    times = [column.name for column in stream.schema.fields if EVENT_TIME in column.metadata]
    if len(times) == 1:
        return times[0]
    raise InvalidDefinition(
        f"join_versions was given rows without an event time. Their columns are: {', '.join(stream.columns)}",
        remedy="declare the table with Stream.from_events(…), and keep its time column until after join_versions",
    )


def _require_column(stream: DataFrame, on: str) -> None:
    if on not in stream.columns:
        raise InvalidDefinition(
            f"join_versions joins on {on!r}, which is no column of the stream",
            remedy=f"its columns are: {', '.join(stream.columns)}",
            code="unknown-column",
        )


def _named(take: Taken) -> dict[str, str]:
    """Column of the result → column of the versions."""
    return dict(take) if isinstance(take, Mapping) else {c: c for c in take}


def _require_taken(taken: Mapping[str, str], stream: DataFrame, versions: DataFrame, table: str) -> None:
    columns = [c for c in versions.columns if c != "_valid"]
    for name, source in taken.items():
        if source not in columns:
            raise InvalidDefinition(
                f"{table} has no column {source!r}",
                remedy=f"its columns are: {', '.join(columns)}",
                code="unknown-column",
            )
        if name in stream.columns:
            raise InvalidDefinition(
                f"join_versions would give two columns {name!r}: the stream has one, and {table} has one",
                remedy=f"rename the version's, take={{'{table}_{name}': '{source}', …}}, or leave it out",
            )
