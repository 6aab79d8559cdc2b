"""A key store as an author of another one writes it: in memory, by what the package offers for it."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from uuid import UUID, uuid4

from eventstore.erasure import DataKey, new_data_key


class Vault:
    def __init__(self) -> None:
        self._lock, self._alive = threading.Lock(), dict[str, DataKey]()
        self._by_id: dict[UUID, DataKey | None] = {}
        self._destroyed: list[UUID] = []

    def keys_for(self, subjects: Collection[str]) -> Mapping[str, DataKey]:
        with self._lock:
            for subject in subjects:
                if subject not in self._alive:
                    key = self._alive[subject] = new_data_key(uuid4())
                    self._by_id[key.id] = key
            return {subject: self._alive[subject] for subject in subjects}

    def keys(self, ids: Collection[UUID]) -> Mapping[UUID, DataKey | None]:
        with self._lock:
            return {id: self._by_id[id] for id in ids if id in self._by_id}

    def erase(self, subject: str) -> int:
        with self._lock:
            key = self._alive.pop(subject, None)
            if key is not None:
                self._by_id[key.id] = None
                self._destroyed.append(key.id)
            return int(key is not None)

    def rotate(self) -> int:
        return 0

    def erasures(self) -> int:
        return len(self._destroyed)

    def destroyed(self, first: int, last: int) -> list[UUID]:
        return self._destroyed[first:last]

    def close(self) -> None:
        """Nothing is open."""
