"""The defaults of an aggregate's state fields: shared values, and factories for values that each state needs."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from functools import partial
from typing import Any, Final
from uuid import UUID

from eventstore.errors import DeclarationError
from eventstore.fields.record_classes import record_class

# deepcopy copies these, although nothing of them can change; what it gives back as it is (numbers, text, enums, None,
# tuples of those) needs no list.
_NEVER_CHANGE: Final = frozenset({date, datetime, time, timedelta, timezone, UUID, object})


def part_defaults(owner: str, values: Mapping[str, Any]) -> tuple[dict[str, Callable[[], Any]], dict[str, Any]]:
    """Part defaults into those made for every state and those that are shared; DeclarationError."""
    fresh: dict[str, Callable[[], Any]] = {}
    shared: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dataclasses.Field) and value.default_factory is not dataclasses.MISSING:
            fresh[name] = value.default_factory
            continue
        default = value.default if isinstance(value, dataclasses.Field) else value
        if _may_be_shared(default, f"{owner}.{name}"):
            shared[name] = default
        else:
            fresh[name] = partial(copy.deepcopy, default)
    return fresh, shared


def _may_be_shared(value: Any, place: str) -> bool:
    kind = type(value)
    if kind in _NEVER_CHANGE or _copied(value, place) is value:
        return True
    if kind in (tuple, frozenset):
        return all(_may_be_shared(item, place) for item in value)
    ways = record_class(kind)
    return ways is not None and ways.frozen and all(_may_be_shared(item, place) for item in _all_of(value, ways.values))


def _all_of(record: Any, values: Callable[[Any], dict[str, Any]]) -> list[Any]:
    """Every value a record holds: those of its fields, and other attributes that a method may have set."""
    return [*values(record).values(), *getattr(record, "__dict__", {}).values()]


def _copied(value: Any, place: str) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception as error:
        raise DeclarationError(
            f"the default of state field {place} cannot be copied, and every aggregate would share it: {error}",
            remedy="create one for each: field(default_factory=…), from dataclasses",
            place=place,
        ) from error
