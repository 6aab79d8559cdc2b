"""Patterns as programs: instructions that take a row, pass one over, or lead on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from projections.declaring.timing.deciding import Deciding, Test
from projections.declaring.timing.patterns import Either, FollowedBy, Label, Pattern, Repeated, Step, Then

DONE: Final = 0  # the place of the instruction that ends a match


@dataclass(frozen=True)
class Take:
    """A row that a label takes; without a test, any."""

    label: str
    test: Test | None
    next: int


@dataclass(frozen=True)
class Pass:
    """A row between two steps, unless it meets a condition; ``next`` is the fork before it."""

    unless: Test | None
    next: int


@dataclass(frozen=True)
class Fork:
    """Several ways on, the preferred one first."""

    ways: tuple[int, ...]


Instruction = Take | Pass | Fork


class Program:
    """The instructions of a pattern, from ``entry`` on to `DONE`, and the tests of its labels.

    ``landings`` has for each place what it leads to without a row.
    """

    def __init__(self, pattern: Pattern, deciding: Deciding) -> None:
        self._deciding = deciding
        self.tests: Mapping[str, Test | None] = {
            name: None if one.condition is None else deciding.test(one.condition)
            for name, one in pattern.labels.items()
        }
        self._unless: dict[int, Test | None] = {}
        self.instructions: list[Instruction] = [Fork(())]
        self.entry = self._add(pattern.step, DONE)
        self.landings = [tuple(dict.fromkeys(self._landing(place))) for place in range(len(self.instructions))]

    def _add(self, step: Step, following: int) -> int:
        """The place of a step's first instruction; it is followed by the instruction at another place."""
        match step:
            case Label(name):
                return self._place(Take(name, self.tests[name], following))
            case Then(left, right):
                return self._add(left, self._add(right, following))
            case FollowedBy():
                return self._apart(step, following)
            case Either(options):
                return self._place(Fork(tuple(self._add(one, following) for one in options)))
            case Repeated():
                return self._repeated(step, following)
        raise TypeError(f"{type(step).__name__} is no step of a pattern")

    def _apart(self, step: FollowedBy, following: int) -> int:
        after, fork = self._add(step.right, following), self._place(Fork(()))
        self.instructions[fork] = Fork((after, self._place(Pass(self._test_between(step), fork))))
        return self._add(step.left, fork)

    def _test_between(self, step: FollowedBy) -> Test | None:
        """One test for all repetitions of a step."""
        if id(step) not in self._unless:
            self._unless[id(step)] = None if step.unless is None else self._deciding.test(step.unless)
        return self._unless[id(step)]

    def _repeated(self, step: Repeated, following: int) -> int:
        entry = following
        if step.most is None:
            entry = self._place(Fork(()))
            self.instructions[entry] = _fork(self._add(step.step, entry), following, greedy=step.greedy)
        for _ in range((step.most or step.least) - step.least):
            entry = self._place(_fork(self._add(step.step, entry), following, greedy=step.greedy))
        for _ in range(step.least):
            entry = self._add(step.step, entry)
        return entry

    def _landing(self, place: int) -> Iterator[int]:
        """The places at which a row is awaited from a place on, or `DONE`, the preferred one first.

        No way leads back without a row: what is repeated has one.
        """
        instruction = self.instructions[place]
        if place != DONE and isinstance(instruction, Fork):
            for way in instruction.ways:
                yield from self._landing(way)
        else:
            yield place

    def _place(self, instruction: Instruction) -> int:
        self.instructions.append(instruction)
        return len(self.instructions) - 1


def _fork(again: int, on: int, *, greedy: bool) -> Fork:
    return Fork((again, on) if greedy else (on, again))
