"""Personal fields: sealed under a key of the person they are about, and out of reach once that is destroyed.

    name: Annotated[str, Personal(subject="customer_id", erased="(erased)")]

An event is never rewritten, so what has to be forgotten is encrypted when it is written: AES-256-GCM (NIST SP 800-38D)
under a data key of its subject, and the data key is kept apart, wrapped by a master key. Erasing a subject destroys its
data key; what was sealed under it shows the declared placeholder from then on, wherever it was copied to.

A sealed value is ``01``, the data key's id (16 bytes), a nonce (12 bytes), and the ciphertext, with its tag, of the
value's Avro encoding; type and field name are bound to it.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable
from uuid import UUID

from eventstore.errors import DeclarationError, InvalidSeal, KeysMissing
from eventstore.identifiers import check_subject
from eventstore.personal import Disclosed, Erased, Sealed
from eventstore.schema_registry import RegisteredSchema

if TYPE_CHECKING:
    from eventstore.event_types import EventType

_FORMAT: Final = b"\x01"
KEY_ID: Final = slice(1, 17)
"""Where a sealed value names its key."""
_NONCE: Final = slice(17, 29)
_BODY: Final = slice(29, None)
_SECRET_BYTES: Final = 32
_NONCE_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class DataKey:
    """The key of one subject; ``secret`` is 32 bytes."""

    id: UUID
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Erasure:
    """What erasing a subject did: how many keys are destroyed, in which streams it stands, how many snapshots went."""

    subject: str
    keys: int
    streams: Sequence[str]
    snapshots: int


OUT_OF_REACH: Final = (
    "changelogs of ordinary tables, and those tables: delete the rows there, and let the topics be compacted",
    "view topics, until they are compacted; lake history and archives of opened data",
    "dead letters and logs of services that wrote an opened value into them",
    "the services' own tables: let them handle the erasure, or ask them for the subject",
    "backups and the write-ahead log of the key table: the key is in them until they expire",
    "exports with keys: delete the files, and erase the subject in every store that imported one",
    "events recorded before their field was marked personal: delete the streams, or republish them under the mark",
    "ids of persons: in stream names and message keys, in the clear fields that name subjects, and in the tables "
    "subject_streams and subject_keys, by which erasures find their way",
)
"""What destroying keys does not reach, for whoever has to see to it."""


@runtime_checkable
class KeyStore(Protocol):
    """Where the data keys of subjects are kept; the default is a table of the event store, wrapped by a master key."""

    def keys_for(self, subjects: Collection[str]) -> Mapping[str, DataKey]:
        """Return the key of each subject, a new one where it has none or its last was destroyed; StoreUnavailable."""

    def keys(self, ids: Collection[UUID]) -> Mapping[UUID, DataKey | None]:
        """Return keys by id, None for those destroyed, nothing for those that were never here; StoreUnavailable."""

    def erase(self, subject: str) -> int:
        """Destroy the keys of a subject for good; return how many there were. StoreUnavailable."""

    def rotate(self) -> int:
        """Wrap every data key by the current master key; return how many were not. StoreUnavailable."""


class FollowedKeys(KeyStore, Protocol):
    """A key store that projections follow: destroyed keys are numbered, and no number is seen before a lower one."""

    def erasures(self) -> int:
        """Return how many keys were ever destroyed; StoreUnavailable."""

    def destroyed(self, first: int, last: int) -> Sequence[UUID]:
        """Return the keys of some erasures in their order, counted from 0, ``last`` exclusive; StoreUnavailable."""

    def close(self) -> None:
        """Let connections go."""


class MasterKeys:
    """The keys that wrap data keys, by name; the first one wraps, all unwrap."""

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
        """Read ``name:base64[,name:base64…]``, the current one first; DeclarationError, which tells no key."""
        pairs = [part.strip().partition(":") for part in text.split(",") if part.strip()]
        try:
            return cls({name: base64.b64decode(key, validate=True) for name, _, key in pairs})
        except ValueError:
            raise DeclarationError(
                "the master keys are not name:base64[,name:base64…]",
                remedy="make one by `factfold keys new`, and put the new one first",
            ) from None

    def wrap(self, key: DataKey) -> bytes:
        """Encrypt a data key by the current master key."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + _encrypted(self._keys[self.current], nonce, key.secret, key.id.bytes)

    def unwrap(self, name: str, key_id: UUID, wrapped: bytes) -> DataKey:
        """Decrypt a data key that the named master key wrapped; KeysMissing, InvalidSeal."""
        if name not in self._keys:
            raise KeysMissing(
                f"a data key is wrapped by the master key {name!r}, which is not here",
                remedy="keep former master keys in the list until `factfold keys rotate` has wrapped every key anew",
            )
        return DataKey(key_id, _opened(self._keys[name], wrapped[:_NONCE_BYTES], wrapped[_NONCE_BYTES:], key_id.bytes))


def new_data_key(key_id: UUID) -> DataKey:
    """Make a key out of the operating system's randomness."""
    return DataKey(key_id, os.urandom(_SECRET_BYTES))


class PersonalData:
    """Seals personal fields on their way in and opens them on their way out, with one look-up of keys a batch."""

    def __init__(self, keys: KeyStore | None) -> None:
        self._keys = keys

    def sealer(self, subjects: Collection[str]) -> Callable[[EventType, object, str], bytes]:
        """Return what encodes events (type, object, aggregate's id) that are about these subjects; KeysMissing."""
        keys = self._held().keys_for(subjects) if subjects else {}

        def encode(kind: EventType, event: object, aggregate_id: str) -> bytes:
            return kind.encode_sealed(
                event, aggregate_id, lambda subject, place, clear: seal(keys[subject], place, clear)
            )

        return encode

    def disclose(self, decoded: Sequence[tuple[RegisteredSchema, dict[str, Any]]]) -> list[dict[str, Any]]:
        """Return the values of decoded events, `Disclosed` where some are personal: the clear ones, or placeholders.

        Without keys they stay `Sealed`. InvalidSeal where a value was changed, or its key was never in this store.
        """
        held = [(schema, name, values[name]) for schema, values in decoded for name in schema.personal]
        if not held:
            return [values for _, values in decoded]
        clear = iter([Sealed(value) for *_, value in held] if self._keys is None else self.opened(held))
        return [
            _disclosed(values, {name: next(clear) for name in schema.personal}) if schema.personal else values
            for schema, values in decoded
        ]

    def opened(self, sealed: Sequence[tuple[RegisteredSchema, str, bytes]]) -> list[Any]:
        """Return the plain values of sealed ones, of fields (second) that a schema wrote; `Erased` where those are.

        InvalidSeal, KeysMissing.
        """
        if not sealed:
            return []
        ids = [_key_id(value, name) for _, name, value in sealed]
        keys = self._held().keys(set(ids))
        return [
            _clear(schema, name, value, key_id, keys) for (schema, name, value), key_id in zip(sealed, ids, strict=True)
        ]

    def _held(self) -> KeyStore:
        if self._keys is not None:
            return self._keys
        raise KeysMissing(
            "an event has personal fields, and there are no keys to seal them with",
            remedy="give the store master keys: SqlEventStore(url, keys=MasterKeys.parse(…)), or a KeyStore",
        )


def subjects_in(schema: RegisteredSchema, values: Mapping[str, Any], aggregate_id: str) -> set[str]:
    """Return whom a decoded event is about, by the fields that its writer named; InvalidIdentifier."""
    named = {kind.get("subject") for kind in schema.personal.values()}
    return {check_subject(aggregate_id if name is None else str(values[name])) for name in named}


def key_ids_in(schema: RegisteredSchema, values: Mapping[str, Any], _: str = "") -> set[UUID]:
    """Return the keys that a decoded event is sealed under; InvalidSeal."""
    return {_key_id(values[name], name) for name in schema.personal}


def keys_elsewhere(subject: str, stream: str) -> KeysMissing:
    """Build the error for an erasure that would destroy nothing: the keys are not where they were looked for."""
    return KeysMissing(
        f"{subject!r} stands in {stream}, and no key of it was ever in this store: nothing is erased",
        remedy="erase with the key store of the services that write: SqlEventStore(url, keys=…), "
        "factfold erase --key-store module:name",
        place=stream,
    )


def seal(key: DataKey, place: str, clear: bytes) -> bytes:
    """Encrypt a value for its place, ``type.field``; the same value never looks the same twice."""
    nonce = os.urandom(_NONCE_BYTES)
    return _FORMAT + key.id.bytes + nonce + _encrypted(key.secret, nonce, clear, place.encode())


def unseal(key: DataKey, place: str, sealed: bytes) -> bytes:
    """Decrypt a sealed value; InvalidSeal where it was changed, or belongs elsewhere."""
    return _opened(key.secret, sealed[_NONCE], sealed[_BODY], place.encode())


def _disclosed(values: Mapping[str, Any], clear: Mapping[str, Any]) -> Disclosed:
    erased = {name: value.placeholder for name, value in clear.items() if type(value) is Erased}
    return Disclosed({**values, **clear, **erased}, erased)


def _clear(
    schema: RegisteredSchema, name: str, sealed: bytes, key_id: UUID, keys: Mapping[UUID, DataKey | None]
) -> Any:
    from eventstore.serialization import decode_value, placeholder

    place, declared = f"{schema.name}.{name}", schema.personal[name]
    if key_id not in keys:
        raise InvalidSeal(
            f"the key {key_id} of {place} was never in this key store",
            remedy="read with the key store of the service that wrote the event",
            place=place,
        )
    key = keys[key_id]
    if key is None:
        return Erased(placeholder(declared))
    return decode_value(declared["personal"], unseal(key, place, sealed))


def _key_id(sealed: bytes, place: str) -> UUID:
    if sealed[:1] == _FORMAT and len(sealed) > _BODY.start:
        return UUID(bytes=sealed[KEY_ID])
    raise InvalidSeal(
        f"the value of {place} is not a sealed one", remedy="find the writer that cut or changed it", place=place
    )


def _encrypted(secret: bytes, nonce: bytes, clear: bytes, bound: bytes) -> bytes:
    encrypted: bytes = _aes(secret).encrypt(nonce, clear, bound)
    return encrypted


def _opened(secret: bytes, nonce: bytes, body: bytes, bound: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag

    try:
        clear: bytes = _aes(secret).decrypt(nonce, body, bound)
    except (InvalidTag, ValueError) as error:
        raise InvalidSeal(
            "a sealed value does not open: it, its key or its place was changed",
            remedy="restore the event or the key from a backup; nothing was returned of it",
            place=bound.decode("ascii", "replace"),
        ) from error
    return clear


def _aes(secret: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise KeysMissing(
            "the package cryptography is not installed", remedy="pip install 'factfold[personal]'"
        ) from error
    return AESGCM(secret)
