"""A step of a preparation: what it looks for, what it makes, and the SQL for those with more rights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from eventstore.errors import FactfoldError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Outcome = Literal["present", "made", "missing", "unknown", "failed"]


@dataclass(frozen=True, slots=True)
class PreparedStep:
    """What a step of `prepare_service` did, or would do.

    Args:
        step: What the step prepares, such as `database` or `connector`.
        target: The name of the database, role, connector or file.
        outcome: `present` if nothing was to do, `made`, or `failed`. A dry run says `missing` for what it would make,
            and `unknown` for what it cannot see before an earlier step is done.
        detail: What is missing or what was made.
        sql: SQL that does the step, for a role with more rights. It holds no password.
        error: The error of a step that failed.

    Examples:
        >>> steps = prepare_service(service, dry_run=True)
        >>> [(step.step, step.target) for step in steps if step.outcome == "missing"]
        [('connector', 'shop_tables')]
    """

    step: str
    target: str
    outcome: Outcome
    detail: str = ""
    sql: tuple[str, ...] = ()
    error: FactfoldError | None = None


class Step(ABC):
    """One thing that a service needs before it runs."""

    name: str
    target: str
    done: str = ""
    """What was made, if that says more than what was missing."""

    @abstractmethod
    def look(self) -> str:
        """Say what is missing, and nothing if all is present."""

    @abstractmethod
    def make(self) -> None:
        """Make what is missing."""

    def sql(self) -> tuple[str, ...]:
        """The SQL that makes what is missing, for a role with more rights."""
        return ()


def perform(step: Step) -> PreparedStep:
    """Make what is missing. An error becomes the outcome."""
    try:
        missing = step.look()
    except FactfoldError as error:
        return PreparedStep(step.name, step.target, "failed", error=error)
    if not missing:
        return PreparedStep(step.name, step.target, "present")
    try:
        step.make()
    except FactfoldError as error:
        return PreparedStep(step.name, step.target, "failed", missing, _sql(step), error)
    return PreparedStep(step.name, step.target, "made", step.done or missing)


def foresee(step: Step, earlier: Iterable[PreparedStep]) -> PreparedStep:
    """Say what `perform` would do. Nothing is changed."""
    try:
        missing = step.look()
    except FactfoldError as error:
        if any(one.outcome == "missing" for one in earlier):
            return PreparedStep(step.name, step.target, "unknown", "seen after the steps before it")
        return PreparedStep(step.name, step.target, "failed", error.message, error=error)
    outcome: Outcome = "missing" if missing else "present"
    return PreparedStep(step.name, step.target, outcome, missing, _sql(step) if missing else ())


def run_steps(
    steps: Iterable[Step], *, on_step: Callable[[PreparedStep], object], dry_run: bool
) -> tuple[PreparedStep, ...]:
    """Perform steps in their order up to the first that fails, whose error is raised. A dry run looks at all."""
    done: list[PreparedStep] = []
    for step in steps:
        result = foresee(step, done) if dry_run else perform(step)
        done.append(result)
        on_step(result)
        if result.error is not None and not dry_run:
            raise result.error
    return tuple(done)


def _sql(step: Step) -> tuple[str, ...]:
    try:
        return step.sql()
    except FactfoldError:  # the database that would say what it lacks does not answer
        return ()
