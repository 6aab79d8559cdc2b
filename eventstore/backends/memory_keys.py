"""The data keys of subjects in memory, for tests and for stores in memory."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from uuid import UUID, uuid4

from eventstore.erasure import DataKey, new_data_key


class MemoryKeys:
    """A key store that ends with the process; safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_id: dict[UUID, DataKey | None] = {}
        self._by_subject: dict[str, DataKey] = {}
        self._destroyed: list[UUID] = []

    def keys_for(self, subjects: Collection[str]) -> Mapping[str, DataKey]:
        """Return the key of each subject, a new one where it has none or its last was destroyed."""
        with self._lock:
            for subject in subjects:
                if subject not in self._by_subject:
                    key = self._by_subject[subject] = new_data_key(uuid4())
                    self._by_id[key.id] = key
            return {subject: self._by_subject[subject] for subject in subjects}

    def keys(self, ids: Collection[UUID]) -> Mapping[UUID, DataKey | None]:
        """Return keys by id, None for those destroyed, nothing for those that were never here."""
        with self._lock:
            return {id: self._by_id[id] for id in ids if id in self._by_id}

    def erase(self, subject: str) -> int:
        """Destroy the key of a subject."""
        with self._lock:
            key = self._by_subject.pop(subject, None)
            if key is not None:
                self._by_id[key.id] = None
                self._destroyed.append(key.id)
            return 0 if key is None else 1

    def rotate(self) -> int:
        """Nothing wraps these keys."""
        return 0

    def erasures(self) -> int:
        """Return how many keys were ever destroyed."""
        return len(self._destroyed)

    def destroyed(self, first: int, last: int) -> list[UUID]:
        """Return the keys of some erasures in their order, counted from 0, ``last`` exclusive."""
        return self._destroyed[first:last]

    def close(self) -> None:
        """Nothing is open."""
