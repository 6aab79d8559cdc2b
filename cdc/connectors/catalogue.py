"""The settings that each connector reads, as lists shipped with the package: their names, types and defaults."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

from cdc.connectors.secrets import sounds_secret
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
