"""What all connectors share: the port, the check of configuration keys, the rule about secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import SecretStr

from cdc.connectors.catalogue import kind_of, known_keys, unknown_key
from cdc.errors import InvalidConnector
from cdc.secrets import refuse_literal, revealed, sounds_secret

if TYPE_CHECKING:
    from sqlalchemy import Engine

Value = str | int | bool


class Connector(Protocol):
    """A connector as `apply` needs it."""

    @property
    def name(self) -> str:
        """The name Connect knows it by."""

    @property
    def has_heartbeats(self) -> bool:
        """Whether it shows that it works though nothing happens at its source."""

    def config(self) -> dict[str, str]:
        """Return the whole configuration without the name."""

    def check_source(self, engine: Engine) -> None:
        """Look whether the database is as the connector needs it; SourceNotReady."""


def setting(value: Value) -> str:
    """Spell a value as Connect does: it stores and returns text, which `apply` compares."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def texts(settings: Mapping[str, Value]) -> dict[str, str]:
    """Spell all values of some settings as Connect does."""
    return {key: setting(value) for key, value in settings.items()}


def revealed_password(
    password: str | SecretStr,
    *,
    allow_literal: bool,
    connector: str,
    key: str = "database.password",
    field: str = "password",
) -> str:
    """Return the configuration's text for a password: a reference, or a literal where it was asked for."""
    if not allow_literal:
        refuse_literal(key, password, connector=connector, place=field)
    return revealed(password)


def check_extra(extra: Mapping[str, str], *, catalogue: str, owned: frozenset[str], connector: str) -> None:
    """Refuse unknown keys, keys that a field of the declaration owns, and literal secrets."""
    known = known_keys(catalogue)
    for key, value in extra.items():
        kind = kind_of(key, known)
        if kind is None:
            raise unknown_key(key, known, connector)
        _refuse_owned(key, owned, connector)
        # A key that is in the list is secret if the list says so, one that only a pattern knows if its name does.
        if kind == "PASSWORD" or (key not in known and sounds_secret(key)):
            refuse_literal(key, value, connector=connector)


def check_unchecked(unchecked: Mapping[str, str], *, owned: frozenset[str], connector: str) -> None:
    """Refuse keys that a field of the declaration owns, and literals of keys that sound secret."""
    for key, value in unchecked.items():
        _refuse_owned(key, owned, connector)
        if sounds_secret(key):
            refuse_literal(key, value, connector=connector)


def _refuse_owned(key: str, owned: frozenset[str], connector: str) -> None:
    if key in owned:
        raise InvalidConnector(
            f"connector {connector!r} sets {key} as extra or unchecked, but a field of the declaration owns it",
            remedy="use the field",
            place=key,
        )


def topic_creation(
    default: Mapping[str, str], groups: Mapping[str, tuple[str, Mapping[str, str]]]
) -> Iterator[tuple[str, str]]:
    """Yield the settings by which Connect creates topics: default, and groups: name → (pattern, settings)."""
    for key, value in default.items():
        yield f"topic.creation.default.{key}", value
    if groups:
        yield "topic.creation.groups", ",".join(groups)
    for group, (pattern, settings) in groups.items():
        yield f"topic.creation.{group}.include", pattern
        for key, value in settings.items():
            yield f"topic.creation.{group}.{key}", value


def masked_repr(connector: Any) -> str:
    """Show a declaration without its secrets and without the values of its further settings."""
    shown = (field.name for field in fields(connector) if field.repr)
    texts = (f"{name}={_shown(getattr(connector, name))}" for name in shown)
    return f"{type(connector).__name__}({', '.join(texts)})"


def _shown(value: object) -> str:
    return repr(sorted(value)) if isinstance(value, Mapping) else repr(value)
