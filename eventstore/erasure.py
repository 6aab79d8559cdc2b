"""Personal fields: sealed under a key of the person they are about, and out of reach once that is destroyed.

    name: Annotated[str, Personal(subject="customer_id", erased="(erased)")]

An event is never rewritten. A personal field is therefore encrypted when it is written: AES-256-GCM (NIST SP 800-38D)
under a data key of its subject. The data key is stored separately, wrapped by a master key. Erasing a subject destroys
its data key. Every copy of a value that was sealed under it then shows the declared placeholder.

How its bytes are made, and what they are bound to, is in `eventstore.personal.sealing`.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable
from uuid import UUID

from eventstore.errors import DeclarationError, InvalidSeal, KeysMissing
from eventstore.fields.plain_json import dump_plain, load_plain
from eventstore.identifiers import check_subject, require_type
from eventstore.personal.sealing import (
    DataKey,
    Disclosed,
    Erased,
    Origin,
    Sealed,
    SealedField,
    binding,
    decrypted,
    encrypted,
    key_id_of,
    seal,
    subject_of,
)
from eventstore.schema_registry import RegisteredSchema
from eventstore.store import RecordedCommand

if TYPE_CHECKING:
    from eventstore.event_types import EventType

__all__ = [
    "OUT_OF_REACH", "DataKey", "Erasure", "FollowedKeys", "KeyStore", "MasterKeys", "Origin", "PersonalData",
    "keys_elsewhere", "keys_in", "new_data_key", "subjects_in",
]  # fmt: skip

_SECRET_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_VERSION: Final = b"\x03"  # in front of a wrapped key: says what is bound to it

Decoded = tuple[RegisteredSchema, dict[str, Any], Origin]
"""A decoded event: the schema that it was written by, its values, and where they stand."""


@dataclass(frozen=True, slots=True)
class Erasure:
    """What erasing a subject did.

    Attributes:
        subject: The subject.
        keys: How many keys were destroyed.
        streams: The streams that have events about the subject.
        snapshots: How many aggregate snapshots were deleted.
        left: What the erasure could not remove from the database's files, each with a remedy.

    Examples:
        >>> erasure = store.erase("7")
        >>> erasure.keys, erasure.streams
        (1, ['customer-7', 'order-1'])
    """

    subject: str
    keys: int
    streams: Sequence[str]
    snapshots: int
    left: Sequence[str] = ()


OUT_OF_REACH: Final = (
    "changelogs of ordinary tables, and those tables: delete the rows there, and let the topics be compacted",
    "view topics, until they are compacted; lake history and archives of opened data",
    "dead letters and logs of services that wrote an opened value into them",
    "the services' own tables: let them handle the erasure, or ask them for the subject",
    "backups and PostgreSQL's write-ahead log of the key table: the wrapped key is in them until they expire",
    "free space of PostgreSQL's pages and of the disk: a wrapped key may be in it until it is used again; after "
    "`factfold keys rotate`, run VACUUM FULL subject_keys when no service appends",
    "exports with keys: delete the files, and erase the subject in every store that imported one",
    "events recorded before their field was marked personal: delete the streams, or republish them under the mark",
    "ids of persons: in stream names and message keys, in the clear fields that name subjects, and in the tables "
    "subject_streams and subject_keys, by which erasures find their way",
)
"""What destroying keys does not reach and you have to handle."""


@runtime_checkable
class KeyStore(Protocol):
    """Where the data keys of subjects are stored: by default in a table of the event store, wrapped by a master key.

    Examples:
        >>> keys: KeyStore = SqlKeyStore("postgresql+psycopg://shop@keys-db/keys", master_keys)
        >>> store = SqlEventStore(url, keys=keys)
    """

    def keys_for(self, subjects: Collection[str]) -> Mapping[str, DataKey]:
        """Return the key of each subject, a new one where it has none or its last was destroyed.

        Raises StoreUnavailable.
        """

    def keys(self, ids: Collection[UUID]) -> Mapping[UUID, DataKey | None]:
        """Return keys by id, None for destroyed ones. Unknown ids are left out.

        Raises StoreUnavailable.
        """

    def erase(self, subject: str) -> int:
        """Destroy the keys of a subject for good. Return how many there were. Raises StoreUnavailable."""

    def rotate(self) -> int:
        """Wrap every data key by the current master key. Return how many were not. Raises StoreUnavailable."""


class FollowedKeys(KeyStore, Protocol):
    """A key store that projections follow: destroyed keys are numbered, and readers see the numbers in their order.

    Examples:
        >>> keys: FollowedKeys = SqlKeyStore("sqlite:///shop.db", MasterKeys.parse(text))
        >>> environment = Environment.embedded("shop.db", keys=keys)
    """

    def erasures(self) -> int:
        """Return how many keys were ever destroyed. Raises StoreUnavailable."""

    def destroyed(self, first: int, last: int) -> Sequence[UUID]:
        """Return the keys of some erasures in their order, counted from 0, ``last`` exclusive.

        Raises StoreUnavailable.
        """

    def close(self) -> None:
        """Close the connections."""


class MasterKeys:
    """The keys that wrap data keys, by name. The first one wraps, all unwrap.

    Examples:
        >>> SqlEventStore(url, keys=MasterKeys({"2026": key}))
    """

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        for name, key in keys.items():
            if len(key) != _SECRET_BYTES:
                raise DeclarationError(
                    f"master key {name!r} has {len(key)} bytes",
                    remedy="make it by `factfold keys new`: 32 bytes, base64",
                )
        if not keys:
            raise DeclarationError("there is no master key", remedy="make one by `factfold keys new`")
        self._keys = dict(keys)
        self.current = next(iter(keys))

    @classmethod
    def parse(cls, text: str) -> MasterKeys:
        """Read `name:base64[,name:base64…]`, the current key first. Raises DeclarationError, which shows no key."""
        require_type(text, str, "the text of master keys", takes="name:base64[,name:base64…]")
        pairs = [part.strip().partition(":") for part in text.split(",") if part.strip()]
        try:
            return cls({name: base64.b64decode(key, validate=True) for name, _, key in pairs})
        except ValueError:
            raise DeclarationError(
                "the master keys are not name:base64[,name:base64…]",
                remedy="make one by `factfold keys new`, and put the new one first",
            ) from None

    def wrap(self, key: DataKey, subject: str, store: str) -> bytes:
        """Encrypt a data key by the current master key. It opens for this subject, in the store of this schema."""
        nonce, body = encrypted(self._keys[self.current], key.secret, _bound(key.id, subject, store))
        return _VERSION + nonce + body

    def unwrap(self, name: str, key_id: UUID, wrapped: bytes, subject: str, store: str) -> DataKey:
        """Decrypt a subject's data key that the named master key wrapped. Raises KeysMissing or InvalidSeal."""
        if name not in self._keys:
            raise KeysMissing(
                f"a data key is wrapped by the master key {name!r}, which is not here",
                remedy="keep former master keys in the list until `factfold keys rotate` has wrapped every key again",
            )
        nonce, body = wrapped[1 : 1 + _NONCE_BYTES], wrapped[1 + _NONCE_BYTES :]
        bound = _bound(key_id, subject, store)
        return DataKey(key_id, decrypted(self._keys[name], nonce, body, bound, place=f"data key {key_id}"))


def _bound(key_id: UUID, subject: str, store: str) -> bytes:
    return _VERSION + key_id.bytes + f"{store}\0{subject}".encode()  # a schema's name has no NUL


def new_data_key(key_id: UUID) -> DataKey:
    """Generate a key from the operating system's randomness.

    Examples:
        >>> key = new_data_key(uuid4())
        >>> wrapped = master.wrap(key, "customer-7", "tenant_acme")
    """
    return DataKey(key_id, os.urandom(_SECRET_BYTES))


class PersonalData:
    """Seals personal fields on their way in and opens them on their way out, with one look-up of keys a batch."""

    def __init__(self, keys: KeyStore | None) -> None:
        self._keys = keys

    def sealer(self, subjects: Collection[str]) -> Sealer:
        """Return what encodes events (type, object, where it will stand) about these subjects; KeysMissing."""
        return Sealer(self._held().keys_for(subjects) if subjects else {})

    def disclose(self, decoded: Sequence[Decoded]) -> list[dict[str, Any]]:
        """Return the values of decoded events, `Disclosed` where some are personal: the clear ones, or placeholders.

        Without keys they stay `Sealed`. InvalidSeal where a value was changed, was sealed for another event or
        subject, or its key was never in this store.
        """
        held = [(name, event) for event in decoded for name in event[0].personal]
        if not held:
            return [values for _, values, _ in decoded]
        if self._keys is None:
            clear = iter([Sealed(values[name]) for name, (_, values, _) in held])
        else:
            clear = iter(self.opened([SealedField.of(name, *event) for name, event in held]))
        return [
            _disclosed(values, {name: next(clear) for name in schema.personal}, schema) if schema.personal else values
            for schema, values, _ in decoded
        ]

    def opened(self, sealed: Sequence[SealedField]) -> list[Any]:
        """Return the plain values of sealed fields; `Erased` where those are. InvalidSeal, KeysMissing."""
        return [_clear(field, body) for field, body in zip(sealed, self._bodies(sealed), strict=True)]

    def commands(self, stored: Mapping[UUID, tuple[str, str]]) -> dict[UUID, RecordedCommand]:
        """Return stored commands, each with its stream, by the ids of their events; the errors of `opened`."""
        read = {one: (load_plain(text), Origin(stream, one.hex)) for one, (text, stream) in stored.items()}
        sealed = [one for values, origin in read.values() for one in _sealed_in(values, origin)]
        opened = iter(self._bodies(sealed))
        commands = {}
        for one, (values, _) in read.items():
            personal = {name: _argument(next(opened)) for name in values["sealed"]}
            subjects = {name: subject for name, (subject, _) in values["sealed"].items()}
            commands[one] = RecordedCommand(values["name"], {**values["arguments"], **personal}, subjects)
        return commands

    def _bodies(self, sealed: Sequence[SealedField]) -> list[bytes | None]:
        """Decrypt sealed values; None for those of erased subjects."""
        if not sealed:
            return []
        ids = [field.key_id for field in sealed]
        keys = self._held().keys(set(ids))
        found = [_key_of(field, key_id, keys) for field, key_id in zip(sealed, ids, strict=True)]
        return [None if key is None else field.opened(key) for field, key in zip(sealed, found, strict=True)]

    def _held(self) -> KeyStore:
        if self._keys is not None:
            return self._keys
        raise KeysMissing(
            "an event has personal fields, and there are no keys to seal them with",
            remedy="give the store master keys: SqlEventStore(url, keys=MasterKeys.parse(…)), or a KeyStore",
        )


class Sealer:
    """Encodes events and commands about subjects, under their keys."""

    def __init__(self, keys: Mapping[str, DataKey]) -> None:
        self._keys = keys

    def __call__(self, kind: EventType, event: object, origin: Origin) -> bytes:
        """Encode an event, its personal fields sealed."""
        return kind.encode_sealed(event, origin.aggregate_id, partial(self._sealed, kind.name, origin))

    def command(self, command: RecordedCommand, origin: Origin) -> str:
        """Return a command as JSON, its personal arguments sealed for its first event."""
        values, subjects = command.arguments, command.subjects
        clear = {name: value for name, value in values.items() if name not in subjects}
        sealed = {
            name: (subject, self._sealed(command.name, origin, subject, name, dump_plain(values[name]).encode()))
            for name, subject in subjects.items()
        }
        return dump_plain({"name": command.name, "arguments": clear, "sealed": {n: list(s) for n, s in sealed.items()}})

    def _sealed(self, kind: str, origin: Origin, subject: str, name: str, clear: bytes) -> bytes:
        return seal(self._keys[subject], binding(kind, name, origin, subject), clear)


def keys_of_command(text: str) -> set[tuple[UUID, str]]:
    """Return the keys that a stored command is sealed under, with their subjects; InvalidEventData, InvalidSeal."""
    values = load_plain(text)
    if not isinstance(values["arguments"], dict):
        raise TypeError("a command has no arguments")
    sealed = values["sealed"].values()
    return {(key_id_of(value, values["name"]), check_subject(subject)) for subject, value in sealed}


def subjects_in(schema: RegisteredSchema, values: Mapping[str, Any], aggregate_id: str) -> set[str]:
    """Return the subjects of a decoded event, by the fields that its writer named; InvalidIdentifier."""
    return {check_subject(subject_of(schema, name, values, aggregate_id)) for name in schema.personal}


def keys_in(schema: RegisteredSchema, values: Mapping[str, Any], aggregate_id: str) -> set[tuple[UUID, str]]:
    """Return the keys that a decoded event is sealed under, each with the subject it must have; InvalidSeal."""
    return {
        (key_id_of(values[name], f"{schema.name}.{name}"), subject_of(schema, name, values, aggregate_id))
        for name in schema.personal
    }


def keys_elsewhere(subject: str, stream: str) -> KeysMissing:
    """Build the error for an erasure that would destroy nothing: the keys are not where they were looked for."""
    return KeysMissing(
        f"{subject!r} stands in {stream}, and no key of it was ever in this store: nothing is erased",
        remedy="erase with the key store of the services that write: SqlEventStore(url, keys=…), "
        "factfold erase --key-store module:name",
        place=stream,
    )


def _disclosed(values: Mapping[str, Any], clear: Mapping[str, Any], schema: RegisteredSchema) -> Disclosed:
    erased = {name: value.placeholder for name, value in clear.items() if type(value) is Erased}
    return Disclosed({**values, **clear, **erased}, erased, schema.personal)


def _sealed_in(values: Mapping[str, Any], origin: Origin) -> list[SealedField]:
    schema, sealed = RegisteredSchema(0, values["name"], {}), values["sealed"].items()
    return [SealedField(schema, name, value, binding(schema.name, name, origin, s)) for name, (s, value) in sealed]


def _argument(body: bytes | None) -> Any:
    return Erased(None) if body is None else load_plain(body.decode())


def _key_of(field: SealedField, key_id: UUID, keys: Mapping[UUID, DataKey | None]) -> DataKey | None:
    if key_id in keys:
        return keys[key_id]
    raise InvalidSeal(
        f"the key {key_id} of {field.place} was never in this key store",
        remedy="read with the key store of the service that wrote the event",
        place=field.place,
    )


def _clear(field: SealedField, body: bytes | None) -> Any:
    from eventstore.fields.serialization import decode_value, placeholder  # fastavro is loaded with the first value

    declared = field.schema.personal[field.name]
    return Erased(placeholder(declared)) if body is None else decode_value(declared["personal"], body)
