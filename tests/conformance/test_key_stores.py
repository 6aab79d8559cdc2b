"""The key stores of the package are key stores, and an author of another one has what it takes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from eventstore import MasterKeys, SqlEventStore, SqlKeyStore
from eventstore.backends.memory import MemoryKeys
from eventstore.erasure import FollowedKeys, KeyStore, new_data_key
from eventstore.personal.sealing import DataKey
from eventstore.testing.key_stores import FollowedKeysConformance, KeyStoreConformance

MASTER = MasterKeys({"one": os.urandom(32)})


class TestMemoryKeys(FollowedKeysConformance):
    @pytest.fixture
    def keys(self) -> FollowedKeys:
        return MemoryKeys()


def of_a_store(url):
    with SqlEventStore(url) as store:
        store.create_tables()
        with SqlKeyStore(store.engine, MASTER) as keys:
            yield keys


class TestSqliteKeys(FollowedKeysConformance):
    @pytest.fixture
    def keys(self, tmp_path: Path) -> Iterator[FollowedKeys]:
        yield from of_a_store(f"sqlite:///{tmp_path}/keys.db")


class TestPostgresKeys(FollowedKeysConformance):
    @pytest.fixture
    def keys(self, request: pytest.FixtureRequest) -> Iterator[FollowedKeys]:
        yield from of_a_store(request.getfixturevalue("database")())


class Vault:
    """What an author writes: the four methods, with what the package root offers for them."""

    def __init__(self):
        self._lock, self._alive = threading.Lock(), dict[str, DataKey]()
        self._keys: dict[UUID, DataKey | None] = {}

    def keys_for(self, subjects):
        with self._lock:
            for subject in subjects:
                if subject not in self._alive:
                    key = self._alive[subject] = new_data_key(uuid4())
                    self._keys[key.id] = key
            return {subject: self._alive[subject] for subject in subjects}

    def keys(self, ids):
        with self._lock:
            return {key_id: self._keys[key_id] for key_id in ids if key_id in self._keys}

    def erase(self, subject):
        with self._lock:
            key = self._alive.pop(subject, None)
            if key is not None:
                self._keys[key.id] = None
            return int(key is not None)

    def rotate(self):
        return 0


class TestKeysOfOnesOwn(KeyStoreConformance):
    @pytest.fixture
    def keys(self) -> KeyStore:
        return Vault()


def test_the_suite_notices_a_number_that_is_seen_too_early():
    """Planted: erasures that are counted before they are listed."""

    class Early(MemoryKeys):
        def erasures(self) -> int:
            return super().erasures() + 1

    with pytest.raises(AssertionError):
        FollowedKeysConformance().test_no_number_is_seen_before_a_lower_one(Early())


def test_what_authors_need_is_loaded_without_a_client():
    use = "from eventstore.personal.sealing import DataKey, FollowedKeys, KeyStore, new_data_key"
    code = f"import sys; {use}; assert not {{'sqlalchemy', 'fastavro', 'cryptography'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
