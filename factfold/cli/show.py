"""What commands print: a result as text or as JSON, aligned columns, the progress of long work, and exit code 3.

What ends a command, as an error with a cause and a remedy, and how that looks in a terminal.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import math
import re
import sys
import time as clock
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from datetime import UTC, date, datetime, time
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from eventstore.errors import FactfoldError
from eventstore.extras import MissingExtra, explained
from factfold import on_demand

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

DIFFERS: Final = 3  # the exit code of an answer that is not "all is well": 1 is an error's, 2 that of wrong usage

# Controls but for the end of a line and tabs, what changes the direction of writing, and what is no UTF-8.
_STEERING: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
# A bar that comes and goes within the blink of an eye tells nothing.
_QUICK_SECONDS: Final = 2.0
_LINE_SECONDS: Final = 10.0

Tell: TypeAlias = "Callable[..., None]"
"""Called with what is done and the whole of it, and if wanted with the step at hand and what follows the counts."""


@dataclasses.dataclass(frozen=True)
class Out:
    """How a command prints its results: as text for people, or as JSON for programs."""

    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False

    def show(self, value: Any, said: str | Iterable[str], *, indent: int | None = None) -> None:
        """Print a value as JSON, or the text or lines that say it. Lines are made only if they are printed."""
        if self.as_json:
            echo(json.dumps(as_json(value), indent=indent, ensure_ascii=indent is None))
            return
        for line in [said] if isinstance(said, str) else said:
            echo(line)

    def each(self, values: Iterable[Any], said: Iterable[str]) -> None:
        """Print each value as a line of JSON, or the lines that say all of them."""
        for line in said if not self.as_json else (json.dumps(as_json(value)) for value in values):
            echo(line)

    def counts(self, report: Any) -> None:
        """Print the counts of a report, each with its name."""
        counts = dataclasses.asdict(report)
        self.show(counts, ", ".join(f"{count:,} {name}" for name, count in counts.items()))

    def state(self, state: str, said: str | None = None, **more: Any) -> None:
        """Say that a command which runs for long has come to a state. The text goes to stderr."""
        echo(json.dumps({"state": state, **more}) if self.as_json else said or state, err=not self.as_json)


def answer(well: bool) -> None:
    """End the command with exit code 3 unless the answer is that all is well."""
    if not well:
        raise typer.Exit(DIFFERS)


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield each row as a line with its cells below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def as_json(value: Any) -> Any:
    """Return what JSON takes: times and decimals as text, bytes hexadecimal, sealed personal values masked."""
    if isinstance(value, Enum):
        return as_json(value.value) if isinstance(value.value, str) else value.name
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _endless(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        return on_demand.MASK if isinstance(value, on_demand.Sealed) else value.hex()
    return _composed(value)


def _composed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): as_json(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(inner) for inner in value]
    if isinstance(value, Set):
        return sorted((as_json(inner) for inner in value), key=str)
    fields = _fields(value)
    return str(value) if fields is None else {name: as_json(getattr(value, name)) for name in fields}


def _fields(value: Any) -> list[str] | None:
    """The fields of a dataclass, a msgspec struct or a Pydantic model; None for what has none."""
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    named = getattr(type(value), "__struct_fields__", None) or getattr(type(value), "model_fields", None)
    return None if named is None else list(named)


def _endless(value: float) -> str:
    return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"


def as_line(value: Any) -> str:
    """Return a value as JSON on one line; characters that would steer a terminal are escaped."""
    return printable(json.dumps(as_json(value), ensure_ascii=False))


def as_pairs(values: Mapping[str, Any]) -> str:
    """Return fields as `amount=3 by="Post"`."""
    return " ".join(f"{printable(str(name))}={as_line(value)}" for name, value in values.items())


def escaped(text: str) -> str:
    """Return a text with its lines, and with what would steer a terminal escaped as JSON and Python do it."""
    return _STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def echo(text: str = "", *, nl: bool = True, err: bool = False) -> None:
    """Print a text that may hold data at once: whatever would steer the terminal is escaped."""
    typer.echo(escaped(text), nl=nl, err=err)


def printable(text: str) -> str:
    """Return a text on one line, with what cannot be printed escaped."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def as_utc(moment: datetime) -> str:
    """Return a time as `2026-11-26 12:00:00.123Z`."""
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(sep=' ', timespec='milliseconds')}Z"


@contextmanager
def progress(what: str, *, at_once: bool = False) -> Iterator[Tell]:
    """A bar on stderr once something takes longer than two seconds, in a log a line every ten seconds.

    `at_once` shows the bar from the beginning, and each step as a line.
    """
    if sys.stderr.isatty():
        with late_bar(what, quick=0.0 if at_once else _QUICK_SECONDS) as tell:
            yield tell
    else:
        yield _lines(what, each_step=at_once)


@contextmanager
def late_bar(what: str, *, quick: float = _QUICK_SECONDS) -> Iterator[Tell]:
    """A bar on stderr, once something takes longer than two seconds."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rest]}"))
    begun = _now()
    with ExitStack() as stack:
        bars: list[tuple[Progress, TaskID]] = []

        def tell(done: int, total: int, step: str = "", rest: str = "") -> None:
            if _now() - begun < quick:
                return
            if not bars:
                console = Console(stderr=True)
                bar = stack.enter_context(Progress(*columns, TimeElapsedColumn(), console=console, transient=True))
                bars.append((bar, bar.add_task(what, rest="")))
            for bar, task in bars:
                shown = step or what
                bar.update(task, description=shown, completed=done, total=total or None, rest=rest, refresh=True)

        yield tell


@contextmanager
def spinner(what: str) -> Iterator[Callable[[str], None]]:
    """On a terminal, show that work of unknown length goes on, and what it says of itself."""
    from rich.console import Console

    with Console(stderr=True).status(what) as status:
        yield status.update


def _lines(what: str, *, each_step: bool) -> Tell:
    before, written_at = "", _now()

    def tell(done: int, total: int, step: str = "", rest: str = "") -> None:
        nonlocal before, written_at
        if (now := _now()) - written_at > _LINE_SECONDS or (each_step and step != before):
            before, written_at = step, now
            echo(f"{f'{step},' if step else f'{what}:'} {done:,} of {total:,}{rest and f' {rest}'}", err=True)

    return tell


def _now() -> float:
    return clock.monotonic()


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
    cause = on_demand.masked_message(error).strip().partition("\n")[0]
    cause = f"the command failed in a way that it has no error for: {type(error).__name__}: {cause}"
    return cause, "repeat the command with --debug, and report its output in an issue"


def ended(work: Callable[[], object], *, debug: bool = False, as_json: bool = False) -> int:
    """Do the work of a process and return its exit code; a FactfoldError is shown as cause, remedy and place."""
    try:
        work()
    except FactfoldError as failure:
        if debug:  # without what a database quotes of parameters and rows
            echo(on_demand.masked_traceback(failure), err=True)
        if as_json:
            echo(json.dumps(failure_fields(failure)), err=True)
        else:
            show_failure(failure)
        return 1
    return 0


def failure_fields(failure: FactfoldError) -> dict[str, str | list[str] | None]:
    """An error for programs: its code, and what a terminal shows."""
    notes = list(getattr(failure, "__notes__", ()))
    cause, remedy, place = failure.message, failure.remedy, failure.place
    return {"code": failure.code, "cause": cause, "remedy": remedy, "place": place, "notes": notes}


def show_failure(failure: FactfoldError) -> None:
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
