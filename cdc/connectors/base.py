"""What all connectors share: the port, the check of configuration keys, the rule about secrets."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, Protocol

from pydantic import SecretStr

from cdc.errors import InvalidConnector, LiteralSecret
from cdc.secrets import is_reference, revealed

if TYPE_CHECKING:
    from sqlalchemy import Engine

_PACKAGE: Final = "cdc.connectors"


class Connector(Protocol):
    """A connector as `apply` needs it."""

    @property
    def name(self) -> str:
        """The name Connect knows it by."""

    def config(self) -> dict[str, str]:
        """Return the whole configuration without the name."""

    def check_source(self, engine: Engine) -> None:
        """Look whether the database is as the connector needs it; SourceNotReady."""


def setting(value: bool | int | str) -> str:
    """Spell a value as Connect does: it stores and returns text, which `apply` compares."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def revealed_password(
    password: str | SecretStr, *, allow_literal: bool, connector: str, key: str = "database.password"
) -> str:
    """Return the configuration's text for a password: a reference, or a literal where it was asked for."""
    text = revealed(password)
    if is_reference(text) or allow_literal:
        return text
    raise LiteralSecret(
        f"connector {connector!r} carries a literal {key}, which Connect would store and show in clear",
        remedy="write it with cdc.secrets.write_secrets and pass the ${file:…} reference it returns, "
        "or say allow_literal_secrets=True",
        place=key,
    )


def check_extra(extra: Mapping[str, str], *, catalogue: str, owned: frozenset[str], connector: str) -> None:
    """Refuse unknown keys, keys that a field of the declaration owns, and literal secrets."""
    known = {**_keys("connect_keys.tsv"), **_keys(catalogue)}
    for key, value in extra.items():
        kind = _kind(key, known)
        if kind is None:
            raise _unknown_key(key, known, connector)
        if key in owned:
            raise InvalidConnector(
                f"connector {connector!r} sets {key} in extra, but a field of the declaration owns it",
                remedy="use the field",
                place=key,
            )
        if kind == "PASSWORD" and value:
            revealed_password(value, allow_literal=False, connector=connector, key=key)


@cache
def _keys(resource: str) -> dict[str, str]:
    """Key (or key pattern) → type, from a catalogue shipped with the package."""
    text = files(_PACKAGE).joinpath(resource).read_text(encoding="utf-8")
    rows = (line.split("\t") for line in text.splitlines() if line and not line.startswith("#"))
    return {row[0]: row[1] if len(row) > 1 else "STRING" for row in rows}


def _kind(key: str, known: Mapping[str, str]) -> str | None:
    if key in known:
        return known[key]
    return next((kind for pattern, kind in known.items() if _matches(key, pattern)), None)


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


def _unknown_key(key: str, known: Mapping[str, str], connector: str) -> InvalidConnector:
    close = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {close[0]}?" if close else "see the connector's list of settings"
    return InvalidConnector(
        f"connector {connector!r} has a setting nobody reads: {key!r}",
        remedy=hint,
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
