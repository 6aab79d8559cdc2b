"""Comparisons without servers: what is certain of a key, how corrections are written, which types have a text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.comparing import repairing
from cdc.comparing.canonical import ColumnForm, Kind, SourceType, source_text, state_text
from cdc.comparing.comparison import look
from cdc.comparing.repairing import Repair, _ranges, deletion_at, needs_place, row_at
from cdc.comparing.report import Digest, Key, KeyRange, SeenRow
from cdc.comparing.walk import Settled, settle
from eventstore.topics import TopicRecord
from projections.declaring.tables import BELOW_STREAMED

KEY: Key = ("7",)


def in_source(digest: str, version: str) -> SeenRow:
    return SeenRow(digest, version=version)


def in_state(digest: str, place: int = 10, *, deleted: bool = False) -> SeenRow:
    return SeenRow(digest, position=(0, place, 1), deleted=deleted)


@dataclass
class Looks:
    """A side whose row of the one key is another one at each look; the last one stays."""

    rows: list[SeenRow | None]
    taken: int = 0

    def rows_of(self, keys: Sequence[Key]) -> dict[Key, SeenRow]:
        row = self.rows[min(self.taken, len(self.rows) - 1)]
        self.taken += 1
        return {} if row is None else {KEY: row}


def settled(source: list[SeenRow | None], state: list[SeenRow | None]) -> Settled:
    return settle(Looks(source), Looks(state), [KEY], here=lambda: 1, wait=lambda place: None)  # type: ignore[arg-type]


A, B = in_source("a", "t1"), in_source("b", "t2")
AGAIN = in_source("a", "t3")


@pytest.mark.parametrize(
    ("source", "state", "kind"),
    [
        pytest.param([A], [None], "missing", id="the state lacks a row that stays"),
        pytest.param([A], [in_state("a", deleted=True)], "missing", id="the state has a row marked as deleted"),
        pytest.param([A], [in_state("b")], "differing", id="the state shows other values of a row that stays"),
        pytest.param([None], [in_state("a")], "extra", id="the state shows a row that the source never has"),
        pytest.param([A], [in_state("a")], None, id="the state has come to it meanwhile"),
        pytest.param([A, B], [in_state("b")], None, id="the state is ahead of the first look"),
        pytest.param([A, AGAIN, AGAIN], [None, in_state("a")], None, id="a row went and came back with its values"),
        pytest.param([None], [in_state("a", 10), None], None, id="a row came and went between two looks"),
        pytest.param([None], [in_state("a", 10), in_state("a", 20), None], None, id="a row came and went twice"),
    ],
)
def test_only_what_no_change_explains_is_a_difference(source, state, kind):
    found = settled(source, state)
    kinds = {name for name in ("missing", "extra", "differing", "changing") if getattr(found, name)}
    assert kinds == ({kind} if kind else set())


def test_a_row_that_changes_at_every_look_is_said_to_be_changing() -> None:
    rows: list[SeenRow | None] = [in_source(f"v{n}", f"t{n}") for n in range(20)]
    assert settled(rows, [in_state("never")]).changing == [KEY]


@dataclass
class Table:
    """One side of a comparison: keys of one number, and the digest of each row."""

    rows_by_key: Mapping[int, str]
    estimate: int = 0
    is_indexed: bool = True
    asked: list[KeyRange] = field(default_factory=list)

    def _in(self, keys: KeyRange) -> dict[int, str]:
        low, high = (None if bound is None else int(bound[0]) for bound in keys)
        inside = (k for k in sorted(self.rows_by_key) if (low is None or k > low) and (high is None or k <= high))
        return {key: self.rows_by_key[key] for key in inside}

    def last_of(self, lower: Key | None, rows: int) -> Key | None:
        found = list(self._in(KeyRange(lower)))
        return (str(found[rows - 1]),) if len(found) >= rows else None

    def digest(self, keys: KeyRange) -> Digest:
        self.asked.append(keys)
        return Digest(len(self._in(keys)), str(self._in(keys)))

    def rows(self, keys: KeyRange) -> dict[Key, SeenRow]:
        return {(str(key),): SeenRow(digest) for key, digest in self._in(keys).items()}


def looked(source: Mapping[int, str], state: Mapping[int, str], *, chunk: int) -> tuple[Any, Table]:
    ours, theirs = Table(source), Table(state)
    found = look(ours, theirs, orders=("integer",), chunk=chunk, on_compared=lambda rows: None)  # type: ignore[arg-type]
    return found, ours


def test_every_key_of_either_side_is_in_one_chunk_and_only_keys_that_differ_are_suspects() -> None:
    source = {n: "same" for n in range(1, 100)} | {40: "other"}
    state = {n: "same" for n in range(2, 300)}
    found, ours = looked(source, state, chunk=10)
    assert sorted(int(key) for (key,) in found.suspects) == [1, 40, *range(100, 300)]
    assert (found.source_rows, found.state_rows) == (len(source), len(state))
    assert all(one.upper == other.lower for one, other in zip(ours.asked, ours.asked[1:], strict=False))
    assert (ours.asked[0].lower, ours.asked[-1].upper) == (None, None)


def test_a_chunk_has_no_more_rows_on_either_side_than_asked_for() -> None:
    dense, sparse = {n: "left" for n in range(1_000)}, {n: "left" for n in range(0, 2_000, 7)}
    for source, state in ((dense, sparse), (sparse, dense), ({}, dense)):
        _, ours = looked(source, state, chunk=100)
        assert max(len(Table(side)._in(keys)) for side in (source, state) for keys in ours.asked) == 100


def record(**source: Any) -> TopicRecord:
    body = {
        "before": {"id": 7},
        "after": {"id": 7, "name": "é"},
        "source": {"lsn": None, "snapshot": "incremental", "ts_ms": 1, "sequence": '["90","95"]', **source},
        "op": "r",
    }
    return TopicRecord("t", 3, 40, b'{"id":7}', json.dumps(body).encode(), (), 0)


NOW = 1_700_000_000_123_456_789


@pytest.mark.parametrize(
    ("place", "lsn", "snapshot"), [(640, 641, "false"), (640 - (1 << 62), 641, "true")], ids=["streamed", "snapshot"]
)
def test_a_correction_stands_one_byte_behind_the_row_that_it_corrects(place: int, lsn: int, snapshot: str) -> None:
    sent = row_at(record(), in_state("a", place), now=NOW)
    body = json.loads(sent.value or b"")
    assert (body["source"]["lsn"], body["source"]["snapshot"], body["op"]) == (lsn, snapshot, "r")
    assert body["after"] == {"id": 7, "name": "é"}
    assert body["source"]["ts_ms"] == NOW // 1_000_000
    assert (sent.key, sent.partition, sent.topic) == (b'{"id":7}', 3, "t")


def test_a_deletion_keeps_the_schema_that_its_record_came_with() -> None:
    plain = record(lsn=1)
    with_schema = {"schema": {"type": "struct"}, "payload": json.loads(plain.value or b"")}
    sent = deletion_at(
        TopicRecord("t", 3, 40, plain.key, json.dumps(with_schema).encode(), (), 0), in_state("a", 640), now=NOW
    )
    body = json.loads(sent.value or b"")
    assert body["schema"] == {"type": "struct"}
    assert (body["payload"]["op"], body["payload"]["after"], body["payload"]["source"]["lsn"]) == ("d", None, 641)


def test_a_correction_is_of_the_life_of_the_source_that_the_stored_row_is_of() -> None:
    sent = row_at(record(), SeenRow("a", position=(2, 640, 1)), now=NOW)
    assert json.loads(sent.value or b"")["factfold_epoch"] == "2"


@pytest.mark.parametrize(("stored", "needed"), [(None, False), (in_state("a", -5), False), (in_state("a", 5), True)])
def test_only_a_streamed_row_keeps_one_that_was_read_again_away(stored: SeenRow | None, needed: bool) -> None:
    assert needs_place(stored) is needed


def test_many_keys_are_read_again_as_ranges_that_hold_them_all() -> None:
    many = [(str(number),) for number in range(10_000)]
    found = _ranges(many)
    assert len(found) == 100
    assert (found[0][0], found[-1][1]) == (many[0], many[-1])
    assert _ranges(many[:2]) == [(many[0], many[0]), (many[1], many[1])]


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("text", "numeric"),  # its text has the digits that were written, and Debezium's need not have them
        ("text", "tstzrange"),  # written in the time zone of a session that is not ours
        ("text", "hstore"),
        ("moment", "timestamp"),
        ("local moment", "timestamptz"),
        ("integer", "float8"),
        ("bits", "varbit"),
        ("map", "hstore"),
        ("shaped", "jsonb"),
        ("date", "timestamp"),
    ],
)
def test_types_without_a_common_text_are_not_compared(kind: Kind, source: str) -> None:
    assert source_text(ColumnForm(kind), SourceType(source), "x") is None


def test_an_array_is_compared_with_a_list_only() -> None:
    whole = ColumnForm("list", ColumnForm("integer"))
    assert source_text(whole, SourceType("int4"), "x") is None
    assert source_text(ColumnForm("integer"), SourceType("int4", is_array=True), "x") is None
    assert source_text(whole, SourceType("int4", is_array=True), "x") is not None


@pytest.mark.parametrize("make", [lambda kind: ColumnForm(kind), lambda kind: ColumnForm("list", ColumnForm(kind))])
@pytest.mark.parametrize("kind", ["map", "shaped"])
def test_a_state_without_a_common_text_is_not_compared(make: Callable[[Kind], ColumnForm], kind: Kind) -> None:
    assert state_text(make(kind), "x") is None


def test_a_snapshots_row_is_corrected_by_as_much_as_readers_move_it_down() -> None:
    assert repairing._BELOW_STREAMED == BELOW_STREAMED


@dataclass
class Asked:
    """Signals that note what they are asked for; the connector answers at once."""

    asked: list[tuple[str, Any]] = field(default_factory=list)

    def snapshot(self, tables: list[str], *, where: Mapping[str, str]) -> Asked:
        self.asked.append(("chunks", where))
        return self

    def blocking_snapshot(self, tables: list[str], *, where: Mapping[str, str]) -> Asked:
        self.asked.append(("in one go", where))
        return self

    def wait(self) -> None: ...


def repaired(settled: Settled, *, kind: Kind = "integer", encoding: str = "json") -> tuple[str | None, Asked]:
    signals = Asked()
    state = SimpleNamespace(key=("id",), forms={"id": ColumnForm(kind)}, encoding=encoding)
    repair = Repair(signals, "public.t", state, lambda ranges: f"{len(ranges)} ranges")  # type: ignore[arg-type]
    return repair.run(settled, before={}), signals


def test_rows_that_the_state_lacks_are_read_again_and_need_no_correction() -> None:
    why_not, signals = repaired(Settled(missing=[("1",), ("2",)]), encoding="avro")
    assert (why_not, signals.asked) == (None, [("chunks", {"public.t": "2 ranges"})])


@pytest.mark.parametrize("kind", ["moment", "local moment"])
def test_rows_by_a_timestamp_are_read_again_in_one_go(kind: Kind) -> None:
    _, signals = repaired(Settled(missing=[("2024-01-01 00:00:00",)]), kind=kind)
    assert [how for how, _ in signals.asked] == ["in one go"]


@pytest.mark.parametrize("wrong", ["extra", "differing"])
def test_records_in_avro_are_not_corrected_and_the_remedy_is_told(wrong: str) -> None:
    why_not, _ = repaired(Settled(**{wrong: [KEY]}, stored={KEY: in_state("a")}), encoding="avro")
    assert "rebuild the group" in (why_not or "")
