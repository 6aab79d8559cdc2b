"""What stands in a change event for a value that its source's log does not have.

A column that an UPDATE left alone and that is stored out of line (TOAST) is not in PostgreSQL's write-ahead log.
Debezium sends a text in its place, or what it makes of that text for another type: base64 for bytea, a list of it for
an array, the codes of its bytes for an array of whole numbers, a list of the UUID made of it for an array of UUIDs, and
a map of it to itself for a map. An array of any other type comes as null, like a real null (recorded:
tests/recordings). For Spark: projections.spark.changes.unavailable.

Debezium's own text is public, and a user may have written it into a row. Each of our connectors has a text of its own,
and each of its change events names it (`rules.FIELD_UNAVAILABLE`). An event that names none is of an older or a foreign
connector, and has Debezium's.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from cdc.changes import rules

# What a connector calls it.
SETTING: Final = "unavailable.value.placeholder"
_DIGITS: Final = 32  # hexadecimal ones: 128 bits


def own_placeholder(*identity: str) -> str:
    """Return a text that no other writer of change events has, and that no user writes by chance."""
    digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()
    return f"__factfold_unavailable_{digest[:_DIGITS]}"


def placeholder_of(event: Mapping[str, Any]) -> str:
    """Return the text that a change event was written with."""
    return str(event.get(rules.FIELD_UNAVAILABLE) or rules.UNAVAILABLE)


def is_unavailable(value: Any, placeholder: str) -> bool:
    """Whether a column's value, as it was sent, stands for one that an update left alone."""
    if isinstance(value, list):
        return value in _lists(placeholder)
    if isinstance(value, dict):
        return value == {placeholder: placeholder}
    return value in _flat(placeholder)


def uuid_of(placeholder: str) -> UUID:
    """Return the UUID that Java makes of a text's bytes (`nameUUIDFromBytes`): version 3, without a namespace."""
    return UUID(
        bytes=hashlib.md5(placeholder.encode(errors="surrogatepass"), usedforsecurity=False).digest(), version=3
    )


@lru_cache(maxsize=64)
def _flat(placeholder: str) -> tuple[str | bytes, ...]:
    data = placeholder.encode(errors="surrogatepass")
    return placeholder, base64.b64encode(data).decode(), data


@lru_cache(maxsize=64)
def _lists(placeholder: str) -> tuple[list[str | int], ...]:
    return [placeholder], [str(uuid_of(placeholder))], list(placeholder.encode(errors="surrogatepass"))
