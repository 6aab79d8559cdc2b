"""What ends a command, as an error with a cause and a remedy, and how that looks in a terminal."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import typer

from eventstore.delivery.masking import masked_message, masked_traceback
from eventstore.errors import FactfoldError
from eventstore.extras import MissingExtra, explained
from factfold.cli.show import echo, escaped

# What is shown as it is, or ends a command. The last one is the base of wrong usage, for which it has no name.
_PASSING: Final = (
    FactfoldError, KeyboardInterrupt, EOFError, typer.Exit, typer.Abort, typer.BadParameter.__mro__[2],
)  # fmt: skip


@contextmanager
def typed_failures() -> Iterator[None]:
    """Raise whatever ends a command as a FactfoldError. Wrong usage and interrupts pass, and a pipe that was closed."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, _PASSING) or _is_closed_pipe(error) or _is_closed_pipe(error.__context__):
            raise
        raise _typed(error) from error


def _is_closed_pipe(error: BaseException | None) -> bool:
    """Whether nobody reads what is printed; Rich makes a SystemExit of it."""
    return isinstance(error, OSError) and error.errno == errno.EPIPE


def _typed(error: BaseException) -> FactfoldError:
    if isinstance(error, ImportError) and isinstance(missing := explained(error), MissingExtra):
        return missing
    cause, remedy = _cause_and_remedy(error)
    return FactfoldError(cause, remedy=remedy, code="command-failed")


def _cause_and_remedy(error: BaseException) -> tuple[str, str]:
    if isinstance(error, UnicodeError):
        return f"a name or a file is no text in UTF-8: {error}", "rename it, or write it in UTF-8"
    if isinstance(error, OSError) and error.strerror:
        named = f": {error.filename!r}" if error.filename is not None else ""
        cause = f"the operating system refuses{named}: {error.strerror}"
        return cause, "check the path or address, its rights for this user, and the disk"
    cause = masked_message(error).strip().partition("\n")[0]
    cause = f"the command failed in a way that it has no error for: {type(error).__name__}: {cause}"
    return cause, "repeat the command with --debug, and report its output in an issue"


def ended(work: Callable[[], object], *, debug: bool = False, as_json: bool = False) -> int:
    """Do the work of a process and return its exit code; a FactfoldError is shown as cause, remedy and place."""
    try:
        work()
    except FactfoldError as failure:
        if debug:  # without what a database quotes of parameters and rows
            echo(masked_traceback(failure), err=True)
        if as_json:
            echo(json.dumps(as_plain(failure)), err=True)
        else:
            show(failure)
        return 1
    return 0


def as_plain(failure: FactfoldError) -> dict[str, str | list[str] | None]:
    """An error for programs: its code, and what a terminal shows."""
    notes = list(getattr(failure, "__notes__", ()))
    cause, remedy, place = failure.message, failure.remedy, failure.place
    return {"code": failure.code, "cause": cause, "remedy": remedy, "place": place, "notes": notes}


def show(failure: FactfoldError) -> None:
    """Print cause, remedy and place to stderr, and below them its notes, such as the end of a log."""
    from rich.console import Console
    from rich.text import Text

    # Soft wrap: a path or a command that is broken over two lines cannot be copied.
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    console.print(Text.assemble(("error: ", "bold red"), escaped(failure.message)))
    console.print(Text.assemble(("  remedy: ", "bold"), escaped(failure.remedy)))
    if failure.place is not None:
        console.print(Text.assemble(("  at: ", "bold"), escaped(failure.place)))
    for note in getattr(failure, "__notes__", ()):
        console.print(Text(escaped(note), style="dim"))
