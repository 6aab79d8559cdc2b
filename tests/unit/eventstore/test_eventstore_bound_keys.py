"""A wrapped key opens as the key of its subject alone: who can change rows can open or destroy no other's."""

from __future__ import annotations

import os

import pytest
import sqlalchemy as sa

from eventstore import MasterKeys, SqlEventStore, SqlKeyStore
from eventstore.errors import InvalidSeal

MASTER = MasterKeys({"one": os.urandom(32)})


@pytest.fixture
def keys(tmp_path):
    url = f"sqlite:///{tmp_path / 'keys.db'}"
    with SqlEventStore(url) as store:
        store.create_tables()
    with SqlKeyStore(url, MASTER) as opened:
        yield opened


def swap(keys, one, other):
    """Give two keys each other's subject; a subject has one key at any time."""
    with keys.engine.begin() as connection:
        for subject, new in ((one, "between"), (other, one), ("between", other)):
            connection.execute(
                sa.text("UPDATE subject_keys SET subject = :new WHERE subject = :subject"),
                {"subject": subject, "new": new},
            )


def test_a_key_under_another_subject_neither_opens_nor_is_destroyed(keys):
    held = keys.keys_for(["alice", "bob"])
    swap(keys, "alice", "bob")
    for refused in (lambda: keys.keys_for(["alice"]), lambda: keys.keys([held["bob"].id]), lambda: keys.erase("alice")):
        with pytest.raises(InvalidSeal):
            refused()
    swap(keys, "alice", "bob")
    assert keys.keys_for(["alice", "bob"]) == held


def test_a_key_that_no_master_key_opens_can_be_destroyed(keys, tmp_path):
    keys.keys_for(["alice"])
    with SqlKeyStore(f"sqlite:///{tmp_path / 'keys.db'}", MasterKeys({"two": os.urandom(32)})) as others:
        assert others.erase("alice") == 1
