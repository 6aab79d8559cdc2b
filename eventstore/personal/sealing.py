"""The bytes of sealed values: AES-256-GCM (NIST SP 800-38D) under a data key, bound to the place of the value.

A sealed value is a version byte, the data key's id (16 bytes), a nonce (12 bytes), and the ciphertext, with its tag, of
the value's Avro encoding. Bound to it, as associated data, are the version, the key's id, and SHA-256 over type, field,
stream, event id and subject (`binding`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple
from uuid import UUID

from eventstore.errors import InvalidSeal, KeysMissing
from eventstore.fields.conversions import Convert
from eventstore.schema_registry import RegisteredSchema

_VERSION: Final = b"\x02"
KEY_ID: Final = slice(1, 17)
"""Where a sealed value names its key."""
_NONCE: Final = slice(17, 29)
_BODY: Final = slice(29, None)
_NONCE_BYTES: Final = 12
_BINDING_BYTES: Final = hashlib.sha256().digest_size


@dataclass(frozen=True, slots=True)
class DataKey:
    """The key of one subject; ``secret`` is 32 bytes.

    Examples:
        >>> len(new_data_key(uuid4()).secret)
        32
    """

    id: UUID
    secret: bytes = field(repr=False)


class Origin(NamedTuple):
    """The event that values were sealed for: its stream, and its id as 32 hexadecimal digits."""

    stream: str
    event_id: str

    @property
    def aggregate_id(self) -> str:
        """The part of the stream's name after the category."""
        return self.stream.partition("-")[2]


class SealedField(NamedTuple):
    """A sealed value of a personal field, with the schema that it was written by and the `binding` of its place."""

    schema: RegisteredSchema
    name: str
    value: bytes
    binding: bytes

    @property
    def place(self) -> str:
        """Type and field."""
        return f"{self.schema.name}.{self.name}"

    @property
    def key_id(self) -> UUID:
        """The id of the key that opens it; InvalidSeal where this is no sealed value."""
        return key_id_of(self.value, self.place)

    @staticmethod
    def of(name: str, schema: RegisteredSchema, values: Mapping[str, Any], origin: Origin) -> SealedField:
        """Return the personal field of a decoded event."""
        subject = subject_of(schema, name, values, origin.aggregate_id)
        return SealedField(schema, name, values[name], binding(schema.name, name, origin, subject))

    @staticmethod
    def from_state(schema: RegisteredSchema, name: str, stored: bytes) -> SealedField:
        """Return a field of a state, where its binding follows the value."""
        return SealedField(schema, name, stored[:-_BINDING_BYTES], stored[-_BINDING_BYTES:])

    def opened(self, key: DataKey) -> bytes:
        """Decrypt the value; InvalidSeal where it was changed, or belongs elsewhere."""
        bound = _bound(key, self.binding)
        return decrypted(key.secret, self.value[_NONCE], self.value[_BODY], bound, place=self.place)


def seal(key: DataKey, bound_to: bytes, clear: bytes) -> bytes:
    """Encrypt a value for its place, a `binding`; the same value never looks the same twice."""
    nonce, body = encrypted(key.secret, clear, _bound(key, bound_to))
    return _VERSION + key.id.bytes + nonce + body


def binding(kind: str, name: str, origin: Origin, subject: str) -> bytes:
    """Return what a value of a type's field in one event is bound to besides its key: SHA-256 over netstrings.

    `projections.spark.events.decode` computes the same inside the JVM.
    """
    parts = [part.encode() for part in (kind, name, *origin, subject)]
    return hashlib.sha256(b"".join(b"%d:%s" % (len(part), part) for part in parts)).digest()


def subject_of(schema: RegisteredSchema, name: str, values: Mapping[str, Any], aggregate_id: str) -> str:
    """Return the subject of a personal field of a decoded event, by the field that its writer named; InvalidSeal."""
    named = schema.personal[name].get("subject")
    if named is None:
        return aggregate_id
    if named in values:
        return str(values[named])
    raise InvalidSeal(
        f"the schema of {schema.name} names {named!r} for the subject of {name}, which is none of its fields",
        remedy="find the writer of this schema",
        place=f"{schema.name}.{name}",
    )


def key_id_of(sealed: bytes, place: str) -> UUID:
    """Return the id of the key that a value is sealed under; InvalidSeal."""
    if sealed[:1] == _VERSION and len(sealed) > _BODY.start:
        return UUID(bytes=sealed[KEY_ID])
    raise InvalidSeal(
        f"the value of {place} is not a sealed one", remedy="find the writer that cut or changed it", place=place
    )


def encrypted(secret: bytes, clear: bytes, bound: bytes) -> tuple[bytes, bytes]:
    """Return a new nonce, and what is encrypted by it, with its tag."""
    nonce = os.urandom(_NONCE_BYTES)
    return nonce, _aes(secret).encrypt(nonce, clear, bound)


def decrypted(secret: bytes, nonce: bytes, body: bytes, bound: bytes, *, place: str) -> bytes:
    """Return what was encrypted; InvalidSeal where any of this was changed."""
    from cryptography.exceptions import InvalidTag

    try:
        clear: bytes = _aes(secret).decrypt(nonce, body, bound)
    except (InvalidTag, ValueError) as error:
        raise InvalidSeal(
            "a sealed value does not open: it, its key or its place was changed",
            remedy="restore the event or the key from a backup. Nothing was returned of it",
            place=place,
        ) from error
    return clear


def _bound(key: DataKey, bound_to: bytes) -> bytes:
    return _VERSION + key.id.bytes + bound_to


def _aes(secret: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise KeysMissing(
            "the package cryptography is not installed", remedy="pip install 'factfold[personal]'"
        ) from error
    return AESGCM(secret)


@dataclass(frozen=True, slots=True)
class Personal:
    """A field about a person, which `erase` makes unreadable.

    Args:
        subject: The event's field that holds the person's id, by default the aggregate's id.
        erased: What readers see after the person was erased. None only for an optional field.

    Examples:
        >>> name: Annotated[str, Personal(subject="customer_id", erased="(erased)")]
    """

    subject: str | None = None
    erased: Any = None


class Sealed(bytes):
    """A personal value that this process cannot open.

    Examples:
        >>> isinstance(recorded.data["name"], Sealed)  # by a store without keys
        True
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Erased:
    """A value of an erased subject while upcasters carry it: the writer's placeholder, and the casts on the way.

    A placeholder is cast only if the current class has none of its own.
    """

    placeholder: Any
    casts: tuple[Any, ...] = ()

    def to_be_cast(self, to: Any) -> Erased:
        """Return the same value, to be cast to an Avro type if it is needed."""
        return replace(self, casts=(*self.casts, to))


class Disclosed(dict[str, Any]):
    """The plain values of an event with personal fields; ``erased`` names those that show the writer's placeholder.

    The current class says what those show once the event is read as the current version. ``personal`` has the writer's
    declaration of each personal field.
    """

    def __init__(
        self, values: Mapping[str, Any], erased: Collection[str] = (), personal: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(values)
        self.erased = frozenset(erased)
        self.personal = dict(personal or {})

    def marked(self) -> dict[str, Any]:
        """Return the values, those of erased persons as `Erased`."""
        return {name: Erased(value) if name in self.erased else value for name, value in self.items()}


def still_sealed(place: str | None = None) -> KeysMissing:
    """Build the error for a value that is still sealed."""
    return KeysMissing(
        "a personal field is sealed, and there are no keys here to open it",
        remedy="read with the keys: SqlEventStore(url, keys=…), open_subscriber(…, keys=…)",
        place=place,
    )


def opened(convert: Convert | None) -> Convert:
    """Refuse a value that is sealed still, as where no keys are at hand."""

    def checked(value: Any) -> Any:
        if type(value) is Sealed:
            raise still_sealed()
        return value if convert is None else convert(value)

    return checked
