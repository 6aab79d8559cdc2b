"""Arguments of a wrong type, refused where a program hands over data or configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from eventstore.errors import WrongType

T = TypeVar("T")


def require_type(value: object, kind: type | tuple[type, ...], name: str, *, takes: str) -> None:
    """Raise WrongType for a value of another type. ``takes`` says in words what the parameter takes."""
    if not isinstance(value, kind):
        raise _wrong(value, name, takes)


def require_like(value: object, member: str, name: str, *, takes: str) -> None:
    """Raise WrongType for a value that lacks a member of what the parameter takes, which may be of any class."""
    if not hasattr(value, member):
        raise _wrong(value, name, takes)


def require_sequence(values: Sequence[T], name: str, *, takes: str) -> Sequence[T]:
    """Return the values. Raise WrongType for what is no list or tuple, such as a text, which has letters."""
    require_type(values, (list, tuple), name, takes=takes)
    return values


def _wrong(value: object, name: str, takes: str) -> WrongType:
    return WrongType(f"{name} is a value of type {type(value).__name__}", remedy=f"give {takes}", place=name)
