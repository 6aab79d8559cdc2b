"""What every key store must do; one of your own joins with a fixture named `keys`.

    class TestMyKeys(KeyStoreConformance):
        @pytest.fixture
        def keys(self) -> KeyStore: ...

`FollowedKeysConformance` asks in addition for what projections follow. Each test uses subjects of its own, so one key
store may serve them all.
"""

# ruff: noqa: S101, D102  # assertions are what this module is for, and its names are the sentences

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from uuid import UUID, uuid4

from eventstore.erasure import FollowedKeys, KeyStore
from eventstore.personal.sealing import DataKey

T = TypeVar("T")

WRITERS = 16
_EACH = 8


def _subjects(count: int) -> list[str]:
    return [f"subject-{uuid4()}" for _ in range(count)]


def _keys_of(keys: KeyStore, subjects: Sequence[str]) -> list[DataKey]:
    by_subject = keys.keys_for(subjects)
    return [by_subject[subject] for subject in subjects]


class KeyStoreConformance:
    """The suite; `keys` must be ready for use."""

    def test_a_subject_has_one_key_of_32_bytes_and_keeps_it(self, keys: KeyStore) -> None:
        one, other = _subjects(2)
        first = keys.keys_for([one, other])
        assert set(first) == {one, other}
        assert len({key.id for key in first.values()}) == len({key.secret for key in first.values()}) == 2
        assert all(len(key.secret) == 32 for key in first.values())
        assert keys.keys_for([one]) == {one: first[one]}
        assert keys.keys_for([]) == {}

    def test_keys_are_found_by_their_ids(self, keys: KeyStore) -> None:
        made = _keys_of(keys, _subjects(3))
        assert keys.keys([key.id for key in made]) == {key.id: key for key in made}
        assert keys.keys([]) == {}

    def test_many_are_found_at_once(self, keys: KeyStore) -> None:
        subjects = _subjects(1_200)
        made = _keys_of(keys, subjects)
        assert _keys_of(keys, subjects) == made
        assert keys.keys([key.id for key in made]) == {key.id: key for key in made}

    def test_a_destroyed_key_differs_from_an_unknown_one(self, keys: KeyStore) -> None:
        (subject, other), stranger = _subjects(2), uuid4()
        destroyed, live = _keys_of(keys, [subject, other])
        assert keys.erase(subject) == 1
        assert keys.keys([destroyed.id, live.id, stranger]) == {destroyed.id: None, live.id: live}

    def test_a_repeated_erasure_and_one_of_an_unknown_subject_destroy_nothing(self, keys: KeyStore) -> None:
        subject, unknown = _subjects(2)
        (destroyed,) = _keys_of(keys, [subject])
        assert (keys.erase(subject), keys.erase(subject), keys.erase(unknown)) == (1, 0, 0)
        assert keys.keys([destroyed.id]) == {destroyed.id: None}

    def test_a_subject_gets_a_new_key_after_erasure_and_the_first_stays_destroyed(self, keys: KeyStore) -> None:
        (subject,) = _subjects(1)
        (first,) = _keys_of(keys, [subject])
        keys.erase(subject)
        (second,) = _keys_of(keys, [subject])
        assert second.id != first.id
        assert second.secret != first.secret
        assert keys.keys([first.id, second.id]) == {first.id: None, second.id: second}

    def test_keys_are_the_same_after_rotation(self, keys: KeyStore) -> None:
        made = _keys_of(keys, _subjects(2))
        keys.rotate()
        assert keys.rotate() == 0
        assert keys.keys([key.id for key in made]) == {key.id: key for key in made}

    def test_a_key_does_not_tell_itself(self, keys: KeyStore) -> None:
        (key,) = _keys_of(keys, _subjects(1))
        assert repr(key.secret)[2:-1] not in repr(key)

    def test_of_writers_at_once_one_makes_the_key(self, keys: KeyStore) -> None:
        subjects = _subjects(4)
        answers = _at_once(lambda n: _keys_of(keys, subjects if n % 2 else subjects[::-1]))
        made = [answer if n % 2 else answer[::-1] for n, answer in enumerate(answers)]
        assert made == [made[0]] * WRITERS

    def test_of_erasures_at_once_one_destroys_the_key(self, keys: KeyStore) -> None:
        (subject,) = _subjects(1)
        _keys_of(keys, [subject])
        assert sum(_at_once(lambda n: keys.erase(subject))) == 1


class FollowedKeysConformance(KeyStoreConformance):
    """The suite of a key store whose erasures are numbered."""

    def test_erasures_are_numbered_in_their_order(self, keys: FollowedKeys) -> None:
        start, subjects = keys.erasures(), _subjects(3)
        made = _keys_of(keys, subjects)
        for number, subject in enumerate(subjects, start=1):
            keys.erase(subject)
            assert keys.erasures() == start + number
        assert list(keys.destroyed(start, start + 3)) == [key.id for key in made]
        assert list(keys.destroyed(start + 1, start + 2)) == [made[1].id]
        assert list(keys.destroyed(start + 3, start + 3)) == []

    def test_what_destroys_nothing_has_no_number(self, keys: FollowedKeys) -> None:
        (subject,), start = _subjects(1), keys.erasures()
        assert (keys.erase(subject), keys.erasures()) == (0, start)

    def test_no_number_is_seen_before_a_lower_one(self, keys: FollowedKeys) -> None:
        """A follower of erasures continues from the highest number seen: it would miss one that came late."""
        start, subjects = keys.erasures(), _subjects(WRITERS * _EACH)
        made, seen = {key.id for key in _keys_of(keys, subjects)}, list[UUID]()

        def erase(number: int) -> list[int]:
            return [keys.erase(subject) for subject in subjects[number::WRITERS]]

        with ThreadPoolExecutor(WRITERS) as pool:
            under_way = [pool.submit(erase, number) for number in range(WRITERS)]
            ended = False
            while not ended:
                ended = all(future.done() for future in under_way)  # looked at before the last poll
                now = keys.erasures()
                known = list(keys.destroyed(start, now))
                assert len(known) == now - start, "a number is missing below one that is seen"
                assert known[: len(seen)] == seen, "what was seen has changed"
                seen = known
        assert [future.result() for future in under_way] == [[1] * _EACH] * WRITERS
        assert set(seen) == made


def _at_once(work: Callable[[int], T]) -> list[T]:
    with ThreadPoolExecutor(WRITERS) as pool:
        return list(pool.map(work, range(WRITERS)))
