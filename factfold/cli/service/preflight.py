"""`factfold preflight`: whether the code of this folder is safe to deploy on stored data."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout
from typing import Annotated, Final

from factfold.cli.cdc.connectors import Sides
from factfold.cli.definitions import complete_package, find_definitions
from factfold.cli.events.store import MaybeStore
from factfold.cli.options import argument, option, setting
from factfold.cli.running import brokers_are_named
from factfold.cli.show import Out, answer, progress
from factfold.console.parts import Places
from factfold.preflight.against import against
from factfold.preflight.delivery import connectors, delivery, settings, versions
from factfold.preflight.findings import Check, Checked, Finding, Level, findings_of
from factfold.preflight.stored import stored
from factfold.preflight.views import views

_CHECKS: Final[Mapping[str, Check]] = {
    "settings": settings, "versions": versions, "event store": stored, "states": against, "connectors": connectors,
    "delivery": delivery, "views": views,
}  # fmt: skip

_VERDICTS: Final = {
    True: "safe to deploy", False: "do not deploy", None: "not known to be safe, as no data was looked at",
}  # fmt: skip


def preflight(
    targets: Annotated[
        list[str],
        argument(
            "What is deployed: a package, a module, or a definition as module:name. May be several.", "PACKAGE",
            autocompletion=complete_package,
        ),
    ],
    store: MaybeStore,
    sides: Sides,
    out: Out,
    views_url: Annotated[str | None, setting("--views-url", "Where the views are.")] = None,
    declared: Annotated[
        str | None, option("--connectors", "The connectors, as cdc plan takes them.")
    ] = None,
    deployed: Annotated[
        str | None,
        option("--against", "The deployed code: a commit, branch or tag, or a wheel. States are compared by field."),
    ] = None,
    sample: Annotated[
        int | None, option("--sample", "Read so many events of each category at most. Default: all.", min=1)
    ] = None,
    every: Annotated[bool, option("--all", "Print green findings too.")] = False,
) -> None:  # fmt: skip
    """Check whether this code is safe to deploy on this data.

    Exit code 3 if a finding is red, as one of a named side that is not reached. It reads stored events with the code
    of this folder, and writes nothing. What is not named is shown as not checked.
    """
    places = Places(
        store_url=store.database, store_schema=store.schema, views_url=views_url, connect_url=sides.connect_url,
        source_url=sides.source_url, kafka=brokers_are_named(),
    )  # fmt: skip
    with ExitStack() as opened, redirect_stdout(sys.stderr), progress("preflight") as tell:
        checked = Checked(
            find_definitions(targets), places, opened, sample, connectors=declared, against=deployed, tell=tell
        )
        findings = list(findings_of(checked, _CHECKS))
    is_red = any(one.level is Level.RED for one in findings)
    safe = False if is_red else True if checked.has_data else None
    out.show({"safe": safe, "findings": findings}, _lines(findings, safe, every=every))
    answer(safe is not False)


def _lines(findings: Sequence[Finding], safe: bool | None, *, every: bool) -> Iterator[str]:
    for one in sorted(findings, key=lambda one: [*Level].index(one.level)):
        if every or one.level is not Level.GREEN:
            yield f"{one.level:<12}{one.subject}: {one.cause}"
            yield from (f"{'':<12}remedy: {remedy}" for remedy in (one.remedy,) if remedy)
    counts = Counter(one.level for one in findings)
    said = ", ".join(f"{counts[level]} {level}" for level in Level)
    yield f"{_VERDICTS[safe]}: {said}"
