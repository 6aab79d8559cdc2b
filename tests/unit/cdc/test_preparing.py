"""The steps of a preparation: what a run makes, what a dry run says, and where both stop."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from cdc.errors import SourceNotReady
from cdc.preparing.steps import PreparedStep, Step, run_steps


@dataclass
class Box(Step):
    """A step that needs the box before it, and makes its own."""

    target: str
    boxes: list[str]
    needs: str = ""
    denied: bool = False
    done: str = field(default="")
    name: str = "box"

    def look(self) -> str:
        if self.needs and self.needs not in self.boxes:
            raise SourceNotReady(f"there is no {self.needs}", remedy="make it")
        return "" if self.target in self.boxes else "a box"

    def make(self) -> None:
        if self.denied:
            raise SourceNotReady("denied", remedy="ask an administrator")
        self.boxes.append(self.target)

    def sql(self) -> tuple[str, ...]:
        return (f"CREATE BOX {self.target}",)


def run(*steps: Step, dry_run: bool = False) -> list[tuple[str, str]]:
    seen: list[PreparedStep] = []
    try:
        run_steps(steps, on_step=seen.append, dry_run=dry_run)
    except SourceNotReady:
        assert seen[-1].outcome == "failed"
    return [(step.target, step.outcome) for step in seen]


def test_what_is_missing_is_made_in_order_and_what_is_present_stays() -> None:
    boxes = ["b"]
    steps = (Box("a", boxes), Box("b", boxes, needs="a"), Box("c", boxes, needs="a"))
    assert run(*steps) == [("a", "made"), ("b", "present"), ("c", "made")]
    assert run(*steps) == [("a", "present"), ("b", "present"), ("c", "present")]


def test_a_dry_run_changes_nothing_and_leaves_open_what_it_cannot_see_yet() -> None:
    boxes: list[str] = []
    steps = (Box("a", boxes), Box("b", boxes, needs="a"))
    assert run(*steps, dry_run=True) == [("a", "missing"), ("b", "unknown")]
    assert boxes == []


def test_a_dry_run_says_what_would_fail_and_looks_at_the_rest() -> None:
    boxes: list[str] = []
    assert run(Box("b", boxes, needs="a"), Box("c", boxes), dry_run=True) == [("b", "failed"), ("c", "missing")]


def test_a_run_stops_at_the_first_failure_with_the_sql_of_the_step() -> None:
    boxes: list[str] = []
    seen: list[PreparedStep] = []
    with pytest.raises(SourceNotReady, match="denied"):
        run_steps([Box("a", boxes, denied=True), Box("b", boxes)], on_step=seen.append, dry_run=False)
    assert [(step.target, step.detail, step.sql) for step in seen] == [("a", "a box", ("CREATE BOX a",))]
    assert boxes == []


def test_a_step_that_was_done_has_no_sql() -> None:
    seen: list[PreparedStep] = []
    run_steps([Box("a", [], done="a large box")], on_step=seen.append, dry_run=False)
    assert (seen[0].detail, seen[0].sql) == ("a large box", ())
