"""Definitions named on the command line as module:name."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TypeVar

from eventstore.errors import DeclarationError

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
