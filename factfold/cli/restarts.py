"""How often a command outwaits what may pass: one option, and one variable, of all commands that run for long."""

from __future__ import annotations

from typing import Annotated, Final

import typer

LIMIT: Final = 8

RestartLimit = Annotated[
    int,
    typer.Option(
        "--restarts",
        envvar="FACTFOLD_RESTARTS",
        min=0,
        help="How often in a row a temporary failure leads to a new start.",
    ),
]
