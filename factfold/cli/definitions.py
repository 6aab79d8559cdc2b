"""Definitions named on the command line as module:name."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from eventstore.errors import DeclarationError

if TYPE_CHECKING:
    from eventstore import Aggregate

T = TypeVar("T")


def load_definition(spec: str, kind: type[T], *, what: str, example: str) -> T:
    """The object of a kind that `module:name` names; DeclarationError says which half is wrong."""
    module, _, name = spec.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")  # a service's own modules, as `python -m` would find them
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise DeclarationError(
            f"there is no {what} {spec!r}: {error}", remedy=f"give it as module:name, for example {example}"
        ) from error
    if not isinstance(found, kind):
        raise DeclarationError(f"{spec!r} is a {type(found).__name__}", remedy=f"name a {kind.__name__}")
    return found


def load_aggregate(spec: str) -> type[Aggregate]:
    """The aggregate that `module:name` names; DeclarationError says which half is wrong."""
    from eventstore import Aggregate

    found = load_definition(spec, type, what="aggregate", example="shop.orders:Order")
    if not issubclass(found, Aggregate):
        raise DeclarationError(f"{spec!r} is no aggregate", remedy="name a class that inherits from Aggregate")
    return found
