"""What all connectors share: the check of configuration keys, the rule about secrets.

The settings that each connector reads, as lists shipped with the package: their names, types and defaults.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any, Final

from cdc.connectors.secrets import is_reference, refuse_literal, sounds_secret
from cdc.errors import InvalidConnector

_LOGIN = re.compile(r"://[^\s,]*@")
# Of converters and of Kafka clients behind a prefix: a PEM key, and a user with a password.
_SECRET_ENDS: Final = ("keystore.key", "user.info")

# What Kafka Connect reads for every source connector.
OF_CONNECT: Final = "connect_keys.tsv"


@cache
def keys_of(catalogue: str) -> Mapping[str, str]:
    """Return each key, or pattern of keys, of one list with its type; `catalogue` is the list's file name."""
    rows = (line.split("\t") for line in text_of(catalogue).splitlines() if line and not line.startswith("#"))
    return {row[0]: row[1] if len(row) > 1 else "STRING" for row in rows}


def text_of(catalogue: str) -> str:
    """Return one list as it is shipped; its second line says which class it was read off and how many keys it has."""
    return files("cdc.connectors").joinpath(catalogue).read_text(encoding="utf-8")


def known_keys(catalogue: str) -> dict[str, str]:
    """Return what a connector may be given: its own keys and Connect's."""
    return {**keys_of(OF_CONNECT), **keys_of(catalogue)}


def kind_of(key: str, known: Mapping[str, str]) -> str | None:
    """Return the type of a key, by its name or by the first pattern it matches; None if it is unknown."""
    if key in known:
        return known[key]
    return next((kind for pattern, kind in known.items() if _matches(key, pattern)), None)


def holds_secret(key: str, value: str = "") -> bool:
    """Whether a setting's value is a secret: by its name, by any list's type of its name's end, by a login in a URL.

    Clients and converters read their settings behind prefixes: `producer.override.ssl.keystore.key`.
    """
    return sounds_secret(key) or f".{key}".endswith(_secret_ends()) or _LOGIN.search(value) is not None


@cache
def _secret_ends() -> tuple[str, ...]:
    lists = (file.name for file in files("cdc.connectors").iterdir() if file.name.endswith("_keys.tsv"))
    secret = {key for name in lists for key, kind in keys_of(name).items() if kind == "PASSWORD"}
    return tuple(f".{key}" for key in sorted(secret.union(_SECRET_ENDS)))


def unknown_key(key: str, known: Mapping[str, str], connector: str) -> InvalidConnector:
    """The error of an unknown setting, with the nearest known one."""
    close = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {close[0]}?" if close else "see the connector's list of settings, or pass it as unchecked"
    return InvalidConnector(f"connector {connector!r} has a setting that is not read: {key!r}", remedy=hint, place=key)


def _matches(key: str, pattern: str) -> bool:
    if pattern.endswith("*"):
        return key.startswith(pattern[:-1]) and len(key) > len(pattern) - 1
    if "(" in pattern:
        # The jar prints `(d+)` for a number and `([^.]+)`, `(.+)` for names; dots around them are dots.
        parts = re.split(r"(\([^)]*\))", pattern)
        return re.fullmatch("".join(_part(part) for part in parts), key) is not None
    return False


def _part(part: str) -> str:
    return part.replace("(d+)", r"(\d+)") if part.startswith("(") else re.escape(part)


Value = str | int | bool
# What Kafka reads of a text: whole numbers of so many bits, fractions, true and false.
_WHOLE: Final = {"SHORT": 16, "INT": 32, "LONG": 64}
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,20}")
_FRACTION = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def setting(value: Value | float) -> str:
    """Spell a value as Connect does: it stores and returns text, which `apply_connector` compares."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def texts(settings: Mapping[str, Value]) -> dict[str, str]:
    """Spell all values of some settings as Connect does."""
    return {key: setting(value) for key, value in settings.items()}


def check_settings(
    settings: Mapping[str, Value], *, catalogue: str | None, owned: Owned, connector: str, allow_literal: bool
) -> None:
    """Refuse keys that the declaration owns, and literal secrets; with a list of settings unknown keys, other types."""
    known = {} if catalogue is None else known_keys(catalogue)
    for key, value in settings.items():
        kind = kind_of(key, known)
        if kind is None and catalogue is not None:
            raise unknown_key(key, known, connector)
        owned.refuse(key, connector)
        text = _text(key, value, connector)
        _check_type(key, text, known.get(key, "STRING"), connector)
        # A key that is in the list is secret if the list says so, one that only a pattern knows if its name does.
        secret = kind == "PASSWORD" or holds_secret("" if key in known else key, text)
        if secret and not allow_literal:
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
