"""Places of changes in MySQL's log. Built from the schema that Debezium documents, for logs that no recording has."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sqlalchemy as sa

from cdc import ChangeDecoder
from cdc.changes.change_records import SourcePosition
from cdc.errors import UndecodableChange

ORDERS = sa.Table("orders", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True))


def place(
    file: Any = "mysql-bin.000003", pos: Any = 484, *, snapshot: str = "false", offset: int = 0, **more: Any
) -> Any:
    source = {"connector": "mysql", "ts_ms": 1465581, "snapshot": snapshot, "file": file, "pos": pos, "row": 0}
    op = "c" if snapshot == "false" else "r"
    body = {"before": None, "after": {"id": 1}, "source": source, "op": op, **more}
    return ChangeDecoder(ORDERS).decode(b'{"id": 1}', json.dumps(body).encode(), offset=offset).position


def test_a_place_in_a_later_file_of_the_log_is_later_however_far_the_first_had_grown() -> None:
    assert place("mysql-bin.000009", (1 << 33) + 5) < place("mysql-bin.000010", 4)
    assert place("mysql-bin.999999", 4).position < 1 << 62


def test_rows_of_one_event_keep_their_order_and_those_of_a_snapshot_lose_to_a_lower_place() -> None:
    assert place(offset=0) < place(offset=1)
    assert place(pos=900, snapshot="last") < place(pos=4)


def test_another_life_of_the_source_wins_over_any_place_of_the_one_before() -> None:
    after = place("binlog.000001", 4, snapshot="first", factfold_epoch="1")
    assert after > place("mysql-bin.000900")
    assert after == SourcePosition(1, streamed=False, position=(1 << 38) + 4, offset=0)


@pytest.mark.parametrize("broken", [{"file": None}, {"pos": None}, {"file": "mysql-bin"}])
def test_a_record_without_a_place_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(UndecodableChange, match=r"no source.file and pos"):
        place(**broken)
