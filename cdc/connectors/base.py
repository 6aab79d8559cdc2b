"""What all connectors share: the port, the check of configuration keys, the rule about secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Protocol

from cdc.connectors.catalogue import holds_secret, kind_of, known_keys, unknown_key
from cdc.connectors.secrets import is_reference, refuse_literal
from cdc.errors import InvalidConnector

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from eventstore.topics import TopicSpec

Value = str | int | bool
# What Kafka reads of a text: whole numbers of so many bits, fractions, true and false.
_WHOLE: Final = {"SHORT": 16, "INT": 32, "LONG": 64}
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,20}")
_FRACTION = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class Connector(Protocol):
    """A connector as `apply_connector` needs it.

    Examples:
        >>> connectors: tuple[Connector, ...] = load_connectors("connectors.toml")
        >>> [connector.name for connector in connectors]
        ['shop_tables', 'shop_outbox']
    """

    @property
    def name(self) -> str:
        """The connector's name in Connect."""

    @property
    def has_heartbeats(self) -> bool:
        """Whether it proves that it works while nothing happens at its source."""

    @property
    def topic_specs(self) -> tuple[TopicSpec, ...]:
        """The topics that the declaration names, as they have to be."""

    def config(self) -> dict[str, str]:
        """Return the whole configuration without the name."""

    def check_source(self, engine: Engine) -> None:
        """Check that the database is as the connector needs it. Raises SourceNotReady."""


def setting(value: Value | float) -> str:
    """Spell a value as Connect does: it stores and returns text, which `apply_connector` compares."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def texts(settings: Mapping[str, Value]) -> dict[str, str]:
    """Spell all values of some settings as Connect does."""
    return {key: setting(value) for key, value in settings.items()}


def check_extra(
    extra: Mapping[str, Value], *, catalogue: str, owned: Owned, connector: str, allow_literal: bool = False
) -> None:
    """Refuse unknown keys, keys that the declaration owns, values of another type, and literal secrets."""
    known = known_keys(catalogue)
    for key, value in extra.items():
        kind = kind_of(key, known)
        if kind is None:
            raise unknown_key(key, known, connector)
        owned.refuse(key, connector)
        text = _text(key, value, connector)
        _check_type(key, text, known.get(key, "STRING"), connector)
        # A key that is in the list is secret if the list says so, one that only a pattern knows if its name does.
        secret = kind == "PASSWORD" or holds_secret("" if key in known else key, text)
        if secret and not allow_literal:
            refuse_literal(key, text, connector=connector)


def check_unchecked(
    unchecked: Mapping[str, Value], *, owned: Owned, connector: str, allow_literal: bool = False
) -> None:
    """Refuse keys that the declaration owns, and literal secrets, as far as names tell them."""
    for key, value in unchecked.items():
        owned.refuse(key, connector)
        text = _text(key, value, connector)
        if holds_secret(key, text) and not allow_literal:
            refuse_literal(key, text, connector=connector)


@dataclass(frozen=True, slots=True)
class Owned:
    """The settings that a declaration writes itself: keys, and beginnings of keys."""

    keys: frozenset[str]
    beginnings: tuple[str, ...] = ()

    def refuse(self, key: str, connector: str) -> None:
        """Refuse one of them among further settings; InvalidConnector."""
        if key in self.keys or key.startswith(self.beginnings):
            raise InvalidConnector(
                f"connector {connector!r} sets {key} as extra or unchecked, but a field of the declaration owns it",
                remedy="use the field",
                place=key,
            )


def _text(key: str, value: object, connector: str) -> str:
    if isinstance(value, str | int | float):
        return setting(value)
    raise _wrong_value(key, f"{type(value).__name__}, which is neither text, number nor boolean", connector)


def _check_type(key: str, text: str, kind: str, connector: str) -> None:
    if not is_reference(text) and not _is_of(kind, text.strip()):
        # Not the value itself: it may be a secret that was put into the wrong setting.
        raise _wrong_value(key, f"a value that is no {kind}", connector)


def _is_of(kind: str, text: str) -> bool:
    if bits := _WHOLE.get(kind):
        return _WHOLE_NUMBER.fullmatch(text) is not None and -(1 << bits - 1) <= int(text) < 1 << bits - 1
    if kind == "DOUBLE":
        return _FRACTION.fullmatch(text) is not None
    return kind != "BOOLEAN" or text.lower() in ("true", "false")


def _wrong_value(key: str, what: str, connector: str) -> InvalidConnector:
    return InvalidConnector(
        f"connector {connector!r} gives {key} {what}",
        remedy="give it a value of the type that the connector's list of settings says, or leave it out",
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


def check_sequences(declaration: Any) -> None:
    """Refuse a single value for a field that is declared as a tuple; InvalidConnector."""
    for field in fields(declaration):
        if str(field.type).startswith("tuple["):
            check_sequence(declaration, field.name)


def check_sequence(declaration: Any, attribute: str) -> None:
    """Refuse a single value for one field; InvalidConnector."""
    value = getattr(declaration, attribute)
    if isinstance(value, tuple | list):
        return
    single = repr(value) if isinstance(value, str) else f"{type(value).__name__}(…)"
    raise InvalidConnector(
        f"{attribute} of {type(declaration).__name__} is {single}, and takes several values",
        remedy=f"write a tuple: {attribute}=({single},)",
        place=attribute,
    )
