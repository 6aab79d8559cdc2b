"""A finding of the preflight: red, yellow or green, its cause and its remedy. What every check is given."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeAlias

from eventstore.errors import FactfoldError, InvalidSettings
from factfold import on_demand
from factfold.cli.events.store import existing_store
from factfold.cli.show import Tell
from factfold.console.parts import Places
from factfold.discovery import Discovery
from factfold.stack import spark_jars
from factfold.stack.java import require_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eventstore import SqlEventStore


class Level(StrEnum):
    """RED: the code must not be deployed. YELLOW: it may be, with the remedy. GREEN: fine. UNKNOWN: not checked."""

    RED = "red"
    YELLOW = "yellow"
    GREEN = "green"
    UNKNOWN = "not checked"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: what it is about, the result in one line, one line of remedy, and a stable code."""

    level: Level
    subject: str
    cause: str
    remedy: str = ""
    code: str = ""

    @classmethod
    def of(cls, level: Level, subject: str, error: Exception) -> Finding:
        """An error as a finding. One that the service's code raised has the line of that code."""
        if isinstance(error, FactfoldError):
            return cls(level, subject, error.message, error.remedy, error.code)
        cause = f"{type(error).__name__}: {on_demand.masked_message(error)}".partition("\n")[0]
        frames = traceback.extract_tb(error.__traceback__)
        own = [one for one in frames if "site-packages" not in one.filename] or frames
        at = f" (at {own[-1].filename}:{own[-1].lineno})" if own else ""
        return cls(level, subject, f"{cause}{at}", "correct the code at this line", "code-raises")


red, yellow, green = (partial(Finding, level) for level in (Level.RED, Level.YELLOW, Level.GREEN))
unknown = partial(Finding, Level.UNKNOWN)


def open_spark(opened: ExitStack) -> SparkSession:
    """Start Spark until the block ends: it plans views, and reads nothing."""
    require_java()
    session = on_demand.open_session(spark_jars(), memory="1g")
    opened.callback(on_demand.end_session, session)
    return session


@dataclass(frozen=True)
class Checked:
    """What is checked: the definitions of a service, the addresses of its data, and how much of it is read.

    ``sample`` is the number of events of a category at most, None for all. Clients are closed with ``opened``.
    ``session`` starts Spark, which ends with it too. ``connectors`` names their declaration, ``against`` the deployed
    code.
    """

    definitions: Discovery
    places: Places
    opened: ExitStack
    sample: int | None = None
    session: Callable[[ExitStack], SparkSession] = open_spark
    connectors: str | None = None
    against: str | None = None
    tell: Tell = field(default=lambda *_: None)

    @cached_property
    def store(self) -> SqlEventStore | None:
        """The event store, which takes no writes. None if none is named."""
        if (url := self.places.store_url) is None:
            return None
        store = self.opened.enter_context(existing_store(url, self.places.store_schema))
        on_demand.refuse_writes(store.engine)
        return store

    @property
    def has_data(self) -> bool:
        """Whether stored events or views were named, to hold the code against."""
        return bool(self.places.store_url or (self.places.views_url and self.definitions.groups))

    @property
    def is_embedded(self) -> bool:
        """Whether all is in a SQLite file: there are no connectors."""
        return (self.places.store_url or self.places.views_url or "").startswith("sqlite")


Check: TypeAlias = Callable[[Checked], Iterable[Finding]]


def findings_of(checked: Checked, checks: Mapping[str, Check]) -> Iterator[Finding]:
    """Run checks one after the other, if all modules can be imported: half of the code would look like missing code.

    A check is red that cannot reach what was named, or in which the code of the service raises.
    """
    for module, cause in checked.definitions.failures.items():
        first = f"module {module} cannot be imported: {cause}".partition("\n")[0]
        yield red(f"module {module}", first, "correct it", "module-broken")
    if checked.definitions.failures:
        yield unknown("all else", "the code cannot be imported", "correct it, and check again")
        return
    yield green("code", f"{len(checked.definitions.definitions)} definitions can be imported")
    for name, check in checks.items():
        try:
            yield from check(checked)
        except InvalidSettings as error:
            yield Finding.of(Level.RED, "settings", error)
        except Exception as error:  # whatever the code of the service raises
            yield Finding.of(Level.RED, f"{name}: not checked", error)
