"""Models of captured tables held against the source's columns, without a state: what a comparison would say of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cdc.comparing.canonical import ColumnForm
from cdc.comparing.source_table import Comparable, comparable, source_table
from cdc.errors import SourceNotReady
from cdc.findings import Finding
from cdc.identifiers import TableName

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from cdc.connectors.postgres import PostgresSource


@dataclass(frozen=True)
class CapturedModel:
    """A table as a projection group declares it over a changelog topic; ``name`` is that of group and table.

    ``fields`` are the source's names of columns that the model names otherwise.
    """

    name: str
    topic: str
    key: tuple[str, ...]
    forms: Mapping[str, ColumnForm]
    encoding: str
    fields: Mapping[str, str] = field(default_factory=dict)


def model_findings(
    connection: Connection, source: PostgresSource, models: Sequence[CapturedModel]
) -> Iterator[Finding]:
    """Look whether each captured table has the columns and the key of the models that are made from its topic."""
    for table in source.tables:
        for model in models:
            if model.topic == source.topic(table):
                yield from _of_model(connection, f"model {model.name} of {table}", table, model)


def _of_model(connection: Connection, check: str, table: str, model: CapturedModel) -> Iterator[Finding]:
    try:
        compared = comparable(source_table(connection, TableName.parse(table, place="tables")), model)
    except SourceNotReady as missing:
        yield Finding.error(check, missing.message, missing.remedy)
    else:
        yield from _of_columns(check, compared)


def _of_columns(check: str, compared: Comparable) -> Iterator[Finding]:
    for fault in compared.faults:
        what, _, remedy = fault.partition("; ")
        yield Finding.error(check, what, remedy)
    if compared.why_not is not None:
        yield Finding.error(check, compared.why_not, "give the model the source's key and types, and rebuild the group")
    for column, types in compared.not_compared.items():
        remedy = "if the column's type has changed, change the model's and rebuild the group; comparisons leave it out"
        yield Finding.warning(check, f"column {column} is {types}", remedy)
    if not (compared.faults or compared.why_not or compared.not_compared):
        yield Finding.ok(check, "; ".join(compared.notes) or "it has the source's columns")
