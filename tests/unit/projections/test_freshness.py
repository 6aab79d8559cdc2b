"""How fresh views are: the newest commit at the source among the last records that were applied."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from cdc.changes.change_records import commit_time
from cdc.errors import UndecodableChange
from projections.declaring.group import ERASURES
from projections.lifecycle.metrics import applied_commits
from projections.testing.memory_log import MemoryLog

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def change(moment):
    return {"op": "c", "after": {"id": 1}, "source": {"ts_ms": int(moment.timestamp() * 1000)}}


def encoded(body):
    return json.dumps(body).encode()


def commits(log, progress):
    with log.open() as opened:
        return applied_commits(opened, progress)


@pytest.mark.parametrize("body", [change(NOON), {"schema": {"type": "struct", "fields": []}, "payload": change(NOON)}])
def test_the_commit_of_a_change_is_that_of_its_transaction(body):
    assert commit_time(encoded(body), "t[0]@0") == NOON


@pytest.mark.parametrize("source", [None, {}, {"ts_ms": None}, {"ts_ms": "noon"}])
def test_a_change_that_does_not_say_has_no_commit(source):
    assert commit_time(encoded({"op": "c", "source": source}), "t[0]@0") is None


def test_a_value_that_is_no_change_is_refused():
    with pytest.raises(UndecodableChange):
        commit_time(b"\xff", "t[0]@0")


def test_the_newest_applied_record_counts_and_those_that_wait_do_not():
    log = MemoryLog()
    for minutes in range(4):
        log.append("items", b"1", encoded(change(NOON + timedelta(minutes=minutes))))
    assert commits(log, {"items": {0: 3}}) == {"items": NOON + timedelta(minutes=2)}


def test_tombstones_and_records_that_were_set_aside_are_passed_over():
    log = MemoryLog()
    log.append("items", b"1", encoded(change(NOON)))
    log.append("items", b"1", None)
    log.append("items", b"2", b"no change at all")
    assert commits(log, {"items": {0: 3}}) == {"items": NOON}


def test_a_topic_that_does_not_say_is_left_out():
    log = MemoryLog()
    log.append("items", b"1", None)
    assert commits(log, {"items": {0: 1}, "others": {0: 0}, ERASURES: {0: 7}}) == {}


def test_a_time_behind_many_tombstones_is_found_and_one_behind_more_is_not():
    log = MemoryLog()
    log.append("items", b"1", encoded(change(NOON)))
    for _ in range(31):
        log.append("items", b"1", None)
    assert commits(log, {"items": {0: 32}}) == {"items": NOON}
    log.append("items", b"1", None)
    assert commits(log, {"items": {0: 33}}) == {}
