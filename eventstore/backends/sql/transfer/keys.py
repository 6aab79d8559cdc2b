"""Data keys in an export of events, wrapped as they are stored: the export does not open them, an import wraps again.

What is erased on either side is erased: a key that was destroyed there is destroyed here, and one that was destroyed
here does not come back.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, func, insert, select, update

from eventstore.backends.sql.database import Database
from eventstore.backends.sql.values import in_utc, rows_in
from eventstore.backends.sql.ways import upsert
from eventstore.erasure import MasterKeys
from eventstore.errors import ImportConflict, InvalidSeal, KeysMissing
from eventstore.identifiers import check_subject
from eventstore.personal.sealing import DataKey


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """A data key as it is stored. A destroyed one has only its id, and the time and number of its erasure.

    ``store`` is the schema that the wrapped key is bound to.
    """

    id: UUID
    subject: str
    wrapped: bytes | None
    master: str | None
    erased: datetime | None
    erasure: int | None
    store: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return what a file says of it; what it does not have is left out."""
        fields = {
            "id": str(self.id),
            "subject": self.subject,
            "wrapped": None if self.wrapped is None else b64encode(self.wrapped).decode("ascii"),
            "master": self.master,
            "store": None if self.wrapped is None else self.store,
            "erased": None if self.erased is None else self.erased.isoformat(),
            "erasure": self.erasure,
        }
        return {name: value for name, value in fields.items() if value is not None}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> WrappedKey:
        """Read what `to_json` made; KeyError, TypeError, ValueError, InvalidIdentifier."""
        subject = check_subject(fields["subject"])
        if "wrapped" in fields:
            wrapped, master, store = b64decode(fields["wrapped"], validate=True), fields["master"], fields["store"]
            if not (isinstance(master, str) and isinstance(store, str)):
                raise TypeError("a wrapped key names its master key and its store")
            return cls(UUID(fields["id"]), subject, wrapped, master, None, None, store)
        erased, erasure = datetime.fromisoformat(fields["erased"]), fields["erasure"]
        if type(erasure) is not int or erased.tzinfo is None:
            raise TypeError("an erasure has a number, and a moment with a zone")
        return cls(UUID(fields["id"]), subject, None, None, erased.astimezone(UTC), erasure)


class KeyTransfer:
    """Takes the rows of `subject_keys` out of one store and into another."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._keys = database.tables.subject_keys
        self._streams = database.tables.subject_streams

    def rows(self, category: str | None) -> list[WrappedKey]:
        """Return the keys of all subjects, or of those that stand in streams of a category, destroyed ones included."""
        columns, streams = self._keys.c, self._streams.c
        query = select(self._keys).order_by(columns.erasure, columns.key_id)
        if category is not None:
            standing = select(streams.subject).where(streams.stream.startswith(f"{category}-", autoescape=True))
            query = query.where(columns.subject.in_(standing))
        with self._database.statement() as connection:
            store = self._database.dialect.schema_of(connection)
            return [_key(row, store) for row in connection.execute(query)]

    def check(self, keys: Sequence[WrappedKey], master: MasterKeys, *, erasures: bool) -> None:
        """Compare a file's keys with those that are here, and change nothing; the errors of `take`."""
        for key in keys:
            if key.wrapped is not None:
                _opened(key, master)
        with self._database.statement() as connection:
            here = self._here(connection, keys)
            _require_agreeing(keys, here, erasures=erasures)
            self._require_theirs(connection, keys, here)

    def take(self, keys: Sequence[WrappedKey], master: MasterKeys, *, erasures: bool) -> int:
        """Keep what is new of a file's keys, all or none; return how much that is.

        Keys that are alive here are destroyed with ``erasures`` only. KeysMissing, ImportConflict.
        """
        with self._database.writing() as connection:
            self._database.dialect.overwrite_deleted(connection)
            self._database.dialect.order_erasures(connection)
            here = self._here(connection, keys)
            _require_agreeing(keys, here, erasures=erasures)
            destroyed = [key for key in keys if key.wrapped is None and (key.id not in here or here[key.id].wrapped)]
            live = [key for key in keys if key.wrapped is not None and key.id not in here]
            self._destroy(connection, sorted(destroyed, key=lambda key: key.erasure or 0), here)
            self._add(connection, live, master)
        if destroyed:
            self._database.scrub([self._keys])
        return len(destroyed) + len(live)

    def _here(self, connection: Connection, keys: Sequence[WrappedKey]) -> dict[UUID, WrappedKey]:
        """Those of a file's keys that are here already, as they are here."""
        rows = rows_in(connection, select(self._keys), self._keys.c.key_id, (key.id for key in keys))
        return {row.key_id: _key(row) for row in rows}

    def _require_theirs(self, connection: Connection, keys: Sequence[WrappedKey], here: Collection[UUID]) -> None:
        """Refuse a key for a subject that has another one. Raises ImportConflict."""
        columns, destroyed = self._keys.c, {key.id for key in keys if key.wrapped is None}
        subjects = [key.subject for key in keys if key.wrapped is not None and key.id not in here]
        alive = select(columns.key_id, columns.subject).where(columns.wrapped.is_not(None))
        for key_id, subject in rows_in(connection, alive, columns.subject, subjects):
            if key_id not in destroyed:
                raise _other_key(subject)
        if len(set(subjects)) < len(subjects):
            raise _other_key(next(subject for subject in subjects if subjects.count(subject) > 1))

    def _destroy(self, connection: Connection, keys: Sequence[WrappedKey], here: Collection[UUID]) -> None:
        """Number erasures behind those that are here: a follower of erasures sees no number change."""
        columns = self._keys.c
        last: int = connection.scalar(select(func.coalesce(func.max(columns.erasure), 0))) or 0
        for number, key in enumerate(keys, start=last + 1):
            erased = {"wrapped": None, "master": None, "erased": key.erased, "erasure": number}
            if key.id in here:
                connection.execute(update(self._keys).where(columns.key_id == key.id).values(erased))
            else:
                connection.execute(insert(self._keys).values(key_id=key.id, subject=key.subject, **erased))

    def _add(self, connection: Connection, keys: Sequence[WrappedKey], master: MasterKeys) -> None:
        if not keys:
            return
        store, rows = self._database.dialect.schema_of(connection), list[dict[str, Any]]()
        for key in keys:
            wrapped = master.wrap(_opened(key, master), key.subject, store)
            rows.append({"key_id": key.id, "subject": key.subject, "wrapped": wrapped, "master": master.current})
        connection.execute(upsert(connection, self._keys).on_conflict_do_nothing(), rows)
        stored = self._here(connection, keys)
        if (other := next((key for key in keys if key.id not in stored), None)) is not None:
            raise _other_key(other.subject)


def _require_agreeing(keys: Sequence[WrappedKey], here: Mapping[UUID, WrappedKey], *, erasures: bool) -> None:
    """Refuse keys that belong to another subject here, and erasures that were not requested; ImportConflict."""
    for key in keys:
        known = here.get(key.id)
        if known is not None and known.subject != key.subject:
            raise ImportConflict(
                f"key {key.id} is of {key.subject!r} in the file, and of {known.subject!r} here",
                remedy="export the file again from the store that its keys are of",
                place=key.subject,
            )
        if known is not None and known.wrapped is not None and key.wrapped is None and not erasures:
            raise ImportConflict(
                f"the file says that the key of {key.subject!r} was destroyed, and it is alive here",
                remedy="destroy it here too, which cannot be undone: erasures=True, --with-erasures",
                place=key.subject,
            )


def _other_key(subject: str) -> ImportConflict:
    return ImportConflict(
        f"subject {subject!r} has another key here than in the file",
        remedy="import into an empty store, or into one that took its keys from the same store",
        place=subject,
    )


def _key(row: Row[Any], store: str = "") -> WrappedKey:
    erased = None if row.erased is None else in_utc(row.erased)
    return WrappedKey(row.key_id, row.subject, row.wrapped, row.master, erased, row.erasure, store)


def _opened(key: WrappedKey, master: MasterKeys) -> DataKey:
    """Open a live key of a file: what it sealed is to be readable here afterwards."""
    try:
        return master.unwrap(key.master or "", key.id, key.wrapped or b"", key.subject, key.store)
    except InvalidSeal as error:
        raise KeysMissing(
            f"key {key.id} of the file was wrapped by another master key of the name {key.master!r}, or changed",
            remedy="give the master keys of the store that it was exported from",
            place=key.subject,
        ) from error
