"""Fields of declarations that take several values: a single text would be read as its letters."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from cdc.errors import InvalidConnector


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
