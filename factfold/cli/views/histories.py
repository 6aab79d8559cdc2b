"""`factfold projections as-of`: the rows of a history at a time."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import typer

import projections
from eventstore.errors import DeclarationError
from factfold.cli.shown_values import echo
from factfold.cli.views.generations import app
from factfold.cli.views.projections import Group, Json, Views, load_group, print_json

__all__ = ["app"]


@app.command("as-of")
def as_of(
    group: Group,
    view: Annotated[str, typer.Argument(help="A history of the group: history('customer_history', …).")],
    views_url: Views,
    at: Annotated[str, typer.Option("--at", help="The time, with its zone: 2026-11-26T12:00:00Z.")],
    as_json: Json = False,
) -> None:
    """Show the rows of a history that were valid at a time, without Spark."""
    rows = projections.rows_as_of(views_url, load_group(group), view, _moment(at)).to_pylist()
    if as_json:
        print_json([_plain(row) for row in rows])
    for row in () if as_json else rows:
        echo("  ".join(f"{column}={value}" for column, value in _plain(row).items()))


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise DeclarationError(f"{text!r} is no time", remedy="write it as 2026-11-26T12:00:00Z") from None


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """With times as ISO 8601 has them."""
    return {column: value.isoformat() if isinstance(value, datetime) else value for column, value in row.items()}
