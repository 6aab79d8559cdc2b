"""Events with personal fields, exported and imported: they can be read and erased afterwards, or are refused before."""

from __future__ import annotations

import json
import os
from typing import Annotated
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa

from eventstore import ANY, Aggregate, MasterKeys, MemoryEventStore, Personal, SqlKeyStore, event
from eventstore.errors import DeclarationError, ImportConflict, InvalidExport, KeysMissing
from tests.errors import raises
from tests.ledger import Payment
from tests.vault import Vault

pytestmark = pytest.mark.postgres_in_faults

MASTER = MasterKeys({"one": os.urandom(32)})
FORMS = ["all.jsonl", "all.parquet"]


class Patient(Aggregate):
    @event
    class Admitted:
        name: Annotated[str, Personal(erased="(erased)")]


class Visit(Aggregate):
    @event
    class Booked:
        patient: UUID
        reason: Annotated[str, Personal(subject="patient", erased="")]


SOMEBODY = UUID("5f0e1f6c-5e7c-4d2a-9c86-2f4d9b9d6a01")


@pytest.fixture
def opened(opened):
    return lambda keys=MASTER: opened(keys=keys)


def admitted(store):
    store.append(f"patient-{SOMEBODY}", [Patient.Admitted(name="Ada")], expected=ANY)
    store.append("patient-8", [Patient.Admitted(name="Bob")], expected=ANY)
    store.append("visit-1", [Visit.Booked(patient=SOMEBODY, reason="cough")], expected=ANY)
    store.append("payment-1", [Payment.Received(amount=1)], expected=ANY)
    return store


def told(store):
    data = [event.data for event in store.read_all()]
    return [str(one.get("name", one.get("reason", one.get("amount")))) for one in data]


def keys_of(store):
    with store.engine.connect() as connection:
        rows = connection.execute(sa.select(store.tables.subject_keys)).all()
    return {(row.subject, row.wrapped is not None): (row.key_id, row.erasure) for row in rows}


@pytest.mark.parametrize("name", FORMS)
def test_what_is_imported_beside_a_shared_key_store_can_be_erased(opened, tmp_path, name):
    shared = Vault()
    admitted(opened(shared)).export_file(tmp_path / name)
    target = opened(shared)
    target.import_file(tmp_path / name)
    erased = target.erase(str(SOMEBODY))
    assert list(erased.streams) == [f"patient-{SOMEBODY}", "visit-1"]
    assert told(target) == ["(erased)", "Bob", "", "1"]


@pytest.mark.parametrize("name", FORMS)
def test_events_whose_keys_are_not_here_are_refused_before_anything_is_stored(opened, tmp_path, name):
    admitted(opened()).export_file(tmp_path / name)
    for keys in (MASTER, Vault(), None):
        target = opened(keys)
        with raises(KeysMissing, match="keys that this key store does not know", remedy="--with-keys"):
            target.import_file(tmp_path / name)
        assert (list(target.read_all()), target.schemas(), target.categories()) == ([], [], [])


@pytest.mark.both_databases
@pytest.mark.parametrize("name", FORMS)
def test_keys_go_along_wrapped_where_they_are_asked_for(opened, tmp_path, name):
    source, target = admitted(opened()), opened()
    assert source.export_file(tmp_path / name, keys=True).keys == 2
    assert target.import_file(tmp_path / name, keys=True).keys == 2
    assert keys_of(target) == keys_of(source)
    assert told(target) == ["Ada", "Bob", "cough", "1"]
    assert list(target.erase(str(SOMEBODY)).streams) == [f"patient-{SOMEBODY}", "visit-1"]
    assert told(target) == ["(erased)", "Bob", "", "1"]
    assert told(source) == ["Ada", "Bob", "cough", "1"]
    content = (tmp_path / name).read_bytes()
    with source.engine.connect() as connection:
        ids = list(connection.scalars(sa.select(source.tables.subject_keys.c.key_id)))
    with SqlKeyStore(source.engine, MASTER) as store:
        assert all(key is None or key.secret not in content for key in store.keys(ids).values())


@pytest.mark.parametrize("name", FORMS)
def test_what_was_erased_stays_so_and_is_numbered_behind_what_was_erased_here(opened, tmp_path, name):
    source, target = admitted(opened()), opened()
    target.append("patient-9", [Patient.Admitted(name="Cy")], expected=ANY)
    target.erase("9")
    source.erase("8")
    source.erase(str(SOMEBODY))
    source.export_file(tmp_path / name, keys=True)
    target.import_file(tmp_path / name, keys=True)
    assert told(target) == ["(erased)", "(erased)", "(erased)", "", "1"]
    with SqlKeyStore(source.engine, MASTER) as there, SqlKeyStore(target.engine, MASTER) as here:
        assert list(here.destroyed(1, here.erasures())) == list(there.destroyed(0, 2))
    assert target.import_file(tmp_path / name, keys=True, erasures=True).keys == 0


@pytest.mark.both_databases
def test_an_erasure_between_two_imports_is_carried_over_and_one_here_is_not_undone(opened, tmp_path):
    source, target, path = admitted(opened()), opened(), tmp_path / "all.jsonl"
    source.export_file(path, keys=True)
    target.import_file(path, keys=True)
    source.erase("8")
    source.append("patient-8", [Patient.Admitted(name="Bob again")], expected=ANY)
    target.erase(str(SOMEBODY))
    source.export_file(path, keys=True)
    with raises(ImportConflict, match="the key of '8' was destroyed, and it is alive here", remedy="--with-erasures"):
        target.import_file(path, keys=True)
    assert told(target) == ["(erased)", "Bob", "", "1"]
    assert target.import_file(path, keys=True, erasures=True).keys == 2
    assert told(target) == ["(erased)", "(erased)", "", "1", "Bob again"]
    with SqlKeyStore(target.engine, MASTER) as keys:
        assert (keys.erasures(), len(keys.destroyed(0, 2))) == (2, 2)


def test_a_file_of_no_events_destroys_no_key(opened, tmp_path):
    target, path = admitted(opened()), tmp_path / "keys.jsonl"
    ((key_id, _),) = [found for (subject, _), found in keys_of(target).items() if subject == "8"]
    erased = {"kind": "key", "id": str(key_id), "subject": "8", "erased": "2026-01-01T00:00:00+00:00", "erasure": 1}
    lines = [{"kind": "export", "format": 1, "keys": 1}, erased, {"kind": "end", "events": 0}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    with pytest.raises(ImportConflict, match="the key of '8' was destroyed, and it is alive here"):
        target.import_file(path, keys=True)
    lines[1]["subject"] = "9"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    with pytest.raises(ImportConflict, match="is of '9' in the file, and of '8' here"):
        target.import_file(path, keys=True, erasures=True)
    assert told(target) == ["Ada", "Bob", "cough", "1"]


@pytest.mark.parametrize("known", ["in the file", "in the store"])
def test_an_event_under_the_key_of_somebody_else_is_refused(opened, tmp_path, known):
    source, target, path = admitted(opened()), opened(), tmp_path / "all.jsonl"
    source.export_file(path, keys=True)
    if known == "in the store":
        target.import_file(path, keys=True)
    lines = path.read_text("utf-8").splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if json.loads(line).get("stream") == "patient-8")
    lines = changed(lines, at, stream="patient-9", id=str(uuid4()))
    if known == "in the store":
        lines = [line for line in lines if json.loads(line)["kind"] != "key"]
        del lines[0]
        lines = [json.dumps({"kind": "export", "format": 1}) + "\n", *lines]
    path.write_text("".join(lines), "utf-8")
    with pytest.raises(InvalidExport, match="it is about '9', and sealed under the key of another subject"):
        target.import_file(path, keys=known == "in the file")
    assert target.head("patient-9") is None


def test_of_one_category_only_the_keys_of_its_subjects_go_along(opened, tmp_path):
    source, target = admitted(opened()), opened()
    source.export_file(tmp_path / "visits.jsonl", category="visit", keys=True)
    target.import_file(tmp_path / "visits.jsonl", keys=True)
    assert list(keys_of(target)) == [(str(SOMEBODY), True)]
    assert told(target) == ["cough"]


def test_events_without_personal_fields_need_no_keys(opened, tmp_path):
    admitted(opened()).export_file(tmp_path / "payments.jsonl", category="payment")
    assert opened(None).import_file(tmp_path / "payments.jsonl").imported == 1


def test_keys_that_nobody_could_open_here_are_refused_before_anything_is_stored(opened, tmp_path):
    admitted(opened()).export_file(tmp_path / "all.jsonl", keys=True)
    for keys in (MasterKeys({"one": os.urandom(32)}), MasterKeys({"two": os.urandom(32)}), None):
        target = opened(keys)
        with pytest.raises(KeysMissing, match="master key"):
            target.import_file(tmp_path / "all.jsonl", keys=True)
        assert (list(target.read_all()), keys_of(target)) == ([], {})


@pytest.mark.both_databases
def test_a_subject_with_another_key_here_is_refused(opened, tmp_path):
    admitted(opened()).export_file(tmp_path / "all.jsonl", keys=True)
    target = opened()
    target.append("patient-8", [Patient.Admitted(name="another Bob")], expected=ANY)
    with pytest.raises(ImportConflict, match="'8' has another key here"):
        target.import_file(tmp_path / "all.jsonl", keys=True)
    assert told(target) == ["another Bob"]


def test_a_file_made_without_keys_has_none_to_take(opened, tmp_path):
    admitted(opened()).export_file(tmp_path / "all.jsonl")
    with pytest.raises(KeysMissing, match="exported without keys"):
        opened().import_file(tmp_path / "all.jsonl", keys=True)


def test_keys_that_are_kept_elsewhere_do_not_travel(opened, tmp_path):
    store = admitted(opened(Vault()))
    for move in (store.export_file, store.import_file):
        with pytest.raises(DeclarationError, match="in another key store"):
            move(tmp_path / "all.jsonl", keys=True)


def changed(lines, at, **values):
    lines[at] = json.dumps({**json.loads(lines[at]), **values}) + "\n"
    return lines


NO_KEYS: list[dict[str, object]] = [
    {"id": "x"}, {"subject": "a\0b"}, {"wrapped": "*"}, {"wrapped": None}, {"master": 7}, {"kind": "schema"}
]  # fmt: skip


def test_a_key_that_is_none_is_refused_by_its_line(opened, tmp_path):
    path, target = tmp_path / "all.jsonl", opened()
    admitted(opened()).export_file(path, keys=True)
    lines = path.read_text("utf-8").splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if json.loads(line)["kind"] == "key")
    for values in NO_KEYS:
        path.write_text("".join(changed(list(lines), at, **values)), "utf-8")
        with pytest.raises(InvalidExport, match="no schema" if "kind" in values else "no key") as refused:
            target.import_file(path, keys=True)
        assert str(refused.value.place).endswith(f"line {at + 1}")
    path.write_text("".join(lines[:at] + lines[at + 1 :]), "utf-8")
    with pytest.raises(InvalidExport, match="1 keys, its head says 2"):
        target.import_file(path, keys=True)
    assert list(target.read_all()) == []


def test_a_subject_is_the_same_from_the_event_and_from_its_stored_form():
    store = MemoryEventStore()
    store.append("visit-1", [Visit.Booked(patient=SOMEBODY, reason="cough")], expected=ANY)
    assert list(store.erase(str(SOMEBODY)).streams) == ["visit-1"]


def test_a_subject_that_could_be_spelt_in_two_ways_is_refused():
    with pytest.raises(DeclarationError, match="is not an id"):

        class Odd(Aggregate):
            @event
            class Weighed:
                weight: float
                name: Annotated[str, Personal(subject="weight", erased="")]
