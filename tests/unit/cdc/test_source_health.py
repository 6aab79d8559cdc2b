"""Findings of a source whose faults no test can plant on a shared server: its settings, and a slot about to be lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc import Severity
from cdc.findings import size
from cdc.source.catalogue import ReplicationSlot, ServerFacts
from cdc.source.source_health import of_room, of_server, of_slot
from tests.unit.cdc.declared import postgres

SHOP = postgres(tables=("public.customers",))
SERVER = ServerFacts(
    database="shop",
    version=180001,
    standby=False,
    wal_level="logical",
    slots=1,
    max_slots=4,
    senders=1,
    max_senders=4,
    slot_cap=1 << 30,
)
SLOT = ReplicationSlot(
    name="factfold_shop", plugin="pgoutput", database="shop", active=True, wal_status="reserved", lag_bytes=100,
    retained_bytes=2048, safe_bytes=1 << 29,
)  # fmt: skip


def unwell(findings):
    return [(one.severity, one.result, one.remedy) for one in findings if one.severity is not Severity.OK]


def test_a_server_and_a_slot_that_are_well_have_nothing_found():
    assert unwell(of_server(SERVER, SHOP)) == unwell(of_room(SERVER, SLOT)) == unwell(of_slot(SLOT, SHOP, SERVER)) == []


@pytest.mark.parametrize(
    ("changes", "words", "remedy"),
    [
        ({"wal_level": "replica"}, "wal_level is replica", "ALTER SYSTEM SET wal_level = 'logical'"),
        ({"standby": True}, "is a standby", "primary"),
        ({"version": 130021}, "PostgreSQL 13, whose pgoutput passes on no marks", "PostgreSQL 14 or newer"),
        ({"database": "other"}, "this is database other, the connector reads shop", "URL"),
    ],
)
def test_a_server_that_cannot_be_captured_from_is_an_error(changes, words, remedy):
    ((severity, found, told),) = unwell(of_server(replace(SERVER, **changes), SHOP))
    assert (severity, words in found, remedy in told) == (Severity.ERROR, True, True)


def test_a_server_without_a_sender_left_is_an_error_for_those_who_have_none():
    full = replace(SERVER, senders=4)
    ((severity, found, remedy),) = unwell(of_room(full, None))
    assert (severity, found) == (Severity.ERROR, "4 of 4 in use, and 1 more is required")
    assert "ALTER SYSTEM SET max_wal_senders = 14" in remedy
    assert unwell(of_room(full, SLOT)) == []


def test_a_server_without_a_slot_left_is_an_error_for_those_who_have_none():
    full = replace(SERVER, slots=4)
    ((severity, found, _),) = unwell(of_room(full, None))
    assert (severity, found) == (Severity.ERROR, "4 of 4 in use, and 1 more is required")
    assert unwell(of_room(full, SLOT)) == []


def test_slots_without_a_limit_are_a_warning():
    ((severity, found, remedy),) = unwell(of_room(replace(SERVER, slot_cap=None), SLOT))
    assert (severity, "fills the disk" in found) == (Severity.WARNING, True)
    assert "max_slot_wal_keep_size" in remedy


@pytest.mark.parametrize(
    ("changes", "severity", "words"),
    [
        ({"wal_status": "unreserved"}, Severity.ERROR, "about to lose its place: it holds 2.0 KiB of log"),
        ({"wal_status": "lost", "retained_bytes": None}, Severity.ERROR, "has lost its place"),
        ({"retained_bytes": (1 << 29) + 1}, Severity.WARNING, "holds 512.0 MiB of log"),
        ({"active": False}, Severity.WARNING, "slot factfold_shop has no reader and holds 2.0 KiB of log"),
        ({"database": "other"}, Severity.ERROR, "is of pgoutput in other"),
        ({"plugin": "decoderbufs"}, Severity.ERROR, "is of decoderbufs in shop"),
    ],
)
def test_a_slot_that_is_not_well_is_found(changes, severity, words):
    ((found_severity, found, remedy),) = unwell(of_slot(replace(SLOT, **changes), SHOP, SERVER))
    assert (found_severity, words in found, bool(remedy)) == (severity, True, True)


def test_a_slot_without_a_limit_may_hold_a_gigabyte_unremarked():
    boundless = replace(SERVER, slot_cap=None)
    assert unwell(of_slot(replace(SLOT, retained_bytes=1 << 30), SHOP, boundless)) == []
    assert unwell(of_slot(replace(SLOT, retained_bytes=(1 << 30) + 1), SHOP, boundless)) != []


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (3 << 19, "1.5 MiB"),
        (1 << 40, "1.0 TiB"),
        (1 << 50, "1024.0 TiB"),
    ],
)
def test_sizes_are_written_for_people(count, text):
    assert size(count) == text
