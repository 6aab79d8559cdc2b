"""`factfold projections explain`: the stages that keep a view up to date, drawn as a tree."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

import projections
from factfold import on_demand
from factfold.cli.shown_values import echo
from factfold.cli.views.histories import app
from factfold.cli.views.projections import Group, Json, Views, load_group, print_json

__all__ = ["app"]


@app.command()
def explain(
    group: Group,
    view: Annotated[str, typer.Argument(help="A view of the group.")],
    views_url: Views,
    as_json: Json = False,
) -> None:
    """Show the stages of a view: what each reads, by which columns, and what its last batch took. Without Spark."""
    stages = projections.explain(views_url, load_group(group), view)
    if as_json:
        print_json([dataclasses.asdict(stage) for stage in stages])
    for line in () if as_json else on_demand.drawn(stages):
        echo(line)
