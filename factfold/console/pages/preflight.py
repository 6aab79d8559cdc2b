"""Preflight: whether the code in the console's folder is safe to deploy on the data that it shows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from eventstore.errors import NotFound
from factfold.console.jobs import JobState
from factfold.console.page import Action, Outcome, Page, Query
from factfold.console.sources import Look, Sources

_ABOUT: Final = "preflight"


@dataclass(frozen=True, slots=True)
class Preflight:
    """The newest finished check with its findings, and the one that runs. `command` is what to type."""

    command: str
    safe: bool | None
    findings: Sequence[Mapping[str, Any]]
    job: JobState | None
    running: JobState | None


def preflight(look: Look, query: Query) -> Preflight:
    """Show the result of the last check that was started here."""
    jobs = look.sources.jobs.about(_ABOUT)
    done = next((job for job in jobs if job.code is not None), None)
    report = json.loads(next((line for line in done.output if line.startswith('{"safe"')), "{}")) if done else {}
    running = next((job for job in jobs if job.code is None), None)
    command = " ".join(("factfold", "preflight", *look.definitions.targets))
    return Preflight(command, report.get("safe"), report.get("findings", ()), done, running)


def _check(sources: Sources, fields: Query) -> Outcome:
    if not (targets := sources.definitions.targets):
        raise NotFound("the console shows no package", remedy="name it: factfold console PACKAGE")
    job = sources.jobs.start(_ABOUT, ["preflight", *targets, "--json"])
    return Outcome(f"started: {job.command}", details=("its findings are below once it ends",))


PAGE: Final = Page("preflight", "Preflight", preflight, actions={"check": Action(_check)})
