"""The matches of a pattern in the rows of a partition, found in one pass from each row at which one may begin.

A pattern is a program, as regular expressions are in Pike's machine: threads, the preferred one first, each stand
before an instruction that takes or passes over the next row. A thread that comes to where a preferred one stands, with
equal states of what conditions look at, has the same future, and ends. So a row costs at most one thread for each place
of the program and each set of states: nothing is tried twice, where backtracking may try exponentially often.

The instructions of a program take a row, pass one over, or lead on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from projections.declaring.predicates import Predicate
from projections.declaring.timing.deciding import Deciding, Partition, States, Test, begun, moved
from projections.declaring.timing.patterns import Either as EitherStep
from projections.declaring.timing.patterns import FollowedBy, Label, Pattern, Repeated, Step, Then
from projections.errors import PatternTooWide, pattern_too_wide

DONE: Final = 0  # the place of the instruction that ends a match
MOST_THREADS: Final = 10_000  # before a row: that many different sets of values were seen on the way to it

Path = tuple[int, str, Any] | None  # the row taken last, its label, and the path before


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
            case EitherStep(options):
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


@dataclass(frozen=True)
class Match:
    """The rows of a match, by their places in the partition, and the label of each."""

    rows: tuple[int, ...]
    labels: tuple[str, ...]


@dataclass(slots=True)
class _Threads:
    """The threads before a row, the preferred one first, and the places and states they came through."""

    waiting: list[tuple[int, States, Path]] = field(default_factory=list)
    seen: set[tuple[int, States]] = field(default_factory=set)


class Automaton:
    """Finds the matches of a pattern; the parts ``before`` of its conditions are decided for each row before."""

    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern
        deciding = Deciding(pattern.slots)
        self._program = Program(pattern, deciding)
        after = pattern.unfollowed_by
        self._after = None if after is None else deciding.test(after)
        self.before: Sequence[Predicate] = deciding.before
        self._fresh: States = tuple(begun(function) for _, function, _ in pattern.slots)
        self._first = [self._program.tests[name] for name in pattern.labels if name in pattern.step.shape.first]

    def matches(self, rows: Partition) -> Iterator[Match]:
        """The matches in their order; PatternTooWide."""
        at = 0
        while at < len(rows.numbers):
            match = self._match(rows, at) if self._may_begin(rows, at) else None
            if match is not None:
                yield match
            at = at + 1 if match is None else self._following(match)

    def _may_begin(self, rows: Partition, at: int) -> bool:
        return any(test is None or test(rows, at, self._fresh) for test in self._first)

    def _following(self, previous: Match) -> int:
        """The row at which the search for the next match begins."""
        skip = self._pattern.skip
        match skip.to:
            case "past last":
                return previous.rows[-1] + 1
            case "next row":
                return previous.rows[0] + 1
        of_label = [row for row, name in zip(previous.rows, previous.labels, strict=True) if name == skip.label]
        return of_label[0] if skip.to == "first" else of_label[-1]

    def _match(self, rows: Partition, start: int) -> Match | None:
        """The preferred match that begins at a row."""
        limit = self._pattern.limit
        deadline = math.inf if limit is None else rows.times[start] + limit
        threads, best = _Threads(), None
        self._lead(threads, self._program.entry, self._fresh, None)
        for at in range(start, len(rows.numbers)):
            if rows.times[at] > deadline or not threads.waiting:
                break
            if at > start and rows.numbers[at] > rows.numbers[at - 1] + 1:
                threads = self._passed_over(threads)
            threads, done = self._moved(rows, at, threads, deadline)
            best = done or best
        return None if best is None else _match_of(best)

    def _moved(self, rows: Partition, at: int, threads: _Threads, deadline: float) -> tuple[_Threads, Path]:
        """The threads behind a row, and the path of the one that is complete there: those after it end."""
        following = _Threads()

        def is_complete(states: States) -> bool:
            return self._after is None or not self._comes_after(rows, at, states, deadline)

        for place, states, path in threads.waiting:
            instruction = self._program.instructions[place]
            if isinstance(instruction, Pass):
                if instruction.unless is not None and instruction.unless(rows, at, states):
                    continue
            else:
                assert not isinstance(instruction, Fork)  # noqa: S101 - no thread waits before one
                if instruction.test is not None and not instruction.test(rows, at, states):
                    continue
                states, path = self._taken(rows, at, states, instruction.label), (at, instruction.label, path)
            if self._lead(following, instruction.next, states, path, is_complete):
                return following, path
        return following, None

    def _passed_over(self, threads: _Threads) -> _Threads:
        """The threads behind rows that are left out, of which nothing is true."""
        following = _Threads()
        for place, states, path in threads.waiting:
            instruction = self._program.instructions[place]
            if isinstance(instruction, Pass):
                self._lead(following, instruction.next, states, path)
        return following

    def _lead(
        self,
        threads: _Threads,
        place: int,
        states: States,
        path: Path,
        is_complete: Callable[[States], bool] = lambda states: False,
    ) -> bool:
        """Let a thread wait where it may go on, in the order of preference, up to where it is complete, if it is."""
        for here in self._program.landings[place]:
            if (here, states) in threads.seen:
                continue
            threads.seen.add((here, states))
            if here != DONE:
                threads.waiting.append((here, states, path))
            elif is_complete(states):
                return True
        if len(threads.waiting) > MOST_THREADS:
            raise self._too_wide()
        return False

    def _taken(self, rows: Partition, at: int, states: States, label: str) -> States:
        """The states once a label has taken a row."""
        return tuple(
            state
            if labels and label not in labels
            else moved(function, state, True if column is None else rows.values[column][at])
            for state, (labels, function, column) in zip(states, self._pattern.slots, strict=True)
        )

    def _comes_after(self, rows: Partition, at: int, states: States, deadline: float) -> bool:
        """Whether a row comes in time that a match must not be followed by."""
        assert self._after is not None  # noqa: S101 - asked before
        for later in range(at + 1, len(rows.numbers)):
            if rows.times[later] > deadline:
                return False
            if self._after(rows, later, states):
                return True
        return False

    def _too_wide(self) -> PatternTooWide:
        return pattern_too_wide(
            f"pattern {self._pattern} is in more than {MOST_THREADS} states at one row, by what its conditions saw",
            place=f"pattern {self._pattern.step}",
        )


def _match_of(path: Path) -> Match:
    taken: list[tuple[int, str]] = []
    while path is not None:
        row, label, path = path
        taken.append((row, label))
    rows, labels = zip(*reversed(taken), strict=True)
    return Match(rows, labels)
