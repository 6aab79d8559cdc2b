"""Plain Avro values as JSON and back, exactly: what JSON has no form for says what it is.

    {"$decimal": "1.20"}   {"$time": "2026-11-26T10:00:00+00:00"}   {"$date": "2026-11-26"}   {"$uuid": "…"}
    {"$bytes": "<base64>"}   {"$float": "nan"}   {"$branch": [name, value]}   {"$map": {…}} for keys that begin with $
    {"$erased": …} for the placeholder of a personal value

No schema is needed to read it, so a value outlives the class that wrote it.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from eventstore.errors import InvalidEventData
from eventstore.personal.sealing import Erased

_MARK: Final = "$"


def dump_plain(value: Any) -> str:
    """Return a plain value as JSON; InvalidEventData for what is no plain value."""
    return json.dumps(_written(value), ensure_ascii=False, allow_nan=False, separators=(", ", ": "))


def load_plain(text: str) -> Any:
    """Return the plain value that `dump_plain` wrote; InvalidEventData for another text."""
    try:
        return _read(json.loads(text))
    except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError) as error:
        raise InvalidEventData(
            f"a stored value is no JSON of ours ({type(error).__name__})",
            remedy="restore the row from a backup, or discard it",
        ) from None


def _written(value: Any) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, Mapping):
        written = {str(key): _written(inner) for key, inner in value.items()}
        return {"$map": written} if any(key.startswith(_MARK) for key in written) else written
    if isinstance(value, list):
        return [_written(inner) for inner in value]
    if isinstance(value, tuple):
        return {"$branch": [_written(inner) for inner in value]}
    if isinstance(value, Erased):
        return {"$erased": _written(value.placeholder)}
    return _marked(value)


def _marked(value: Any) -> dict[str, str]:
    if isinstance(value, datetime):
        return {"$time": value.isoformat()}
    if isinstance(value, date):
        return {"$date": value.isoformat()}
    if isinstance(value, bytes):
        return {"$bytes": b64encode(value).decode()}
    if isinstance(value, Decimal):
        return {"$decimal": str(value)}
    if isinstance(value, UUID):
        return {"$uuid": str(value)}
    raise InvalidEventData(
        f"a {type(value).__name__} is no plain value",
        remedy="use the types that fields of events have",
    )


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return [_read(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and (name := next(iter(value))).startswith(_MARK):
        return _READERS[name](value[name])
    return {key: _read(inner) for key, inner in value.items()}


_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "$decimal": Decimal,
    "$time": datetime.fromisoformat,
    "$date": date.fromisoformat,
    "$uuid": UUID,
    "$bytes": lambda text: b64decode(text, validate=True),
    "$float": float,
    "$branch": lambda parts: tuple(_read(inner) for inner in parts),
    "$erased": lambda shown: Erased(_read(shown)),
    "$map": lambda found: {key: _read(inner) for key, inner in found.items()},
}
