"""How an error looks in a terminal."""

from __future__ import annotations

import typer

from eventstore.delivery.masking import masked_traceback
from eventstore.errors import FactfoldError


def show(failure: FactfoldError) -> None:
    """Print cause, remedy and place to stderr, and below them its notes, such as the end of a log."""
    from rich.console import Console
    from rich.text import Text

    # Soft wrap: a path or a command that is broken over two lines cannot be copied.
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    console.print(Text.assemble(("error: ", "bold red"), failure.message))
    console.print(Text.assemble(("  remedy: ", "bold"), failure.remedy))
    if failure.place is not None:
        console.print(Text.assemble(("  at: ", "bold"), failure.place))
    for note in getattr(failure, "__notes__", ()):
        console.print(Text(note, style="dim"))


def show_traceback(failure: FactfoldError) -> None:
    """Print an error's traceback and its causes' to stderr, without what a database quotes of parameters and rows."""
    typer.echo(masked_traceback(failure), err=True)
