"""Values that are equal and yet differ: 0.0 and -0.0, and texts of a collation. Which of them comes first is chance."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from projections.planning.plans import Node
from projections.planning.rows import Untraceable

_FLOATS: Final = re.compile(r"(^|[<:,])(double|float)(?=$|[,>])")  # in a type, and not the name of a field
_COLLATED: Final = re.compile(r"\bstring collate (?!UTF8_BINARY\b(?!_))")
_NUMBERS: Final = ("tinyint", "smallint", "int", "bigint", "decimal")  # which have one zero
_ZEROS: Final = ("0.0D", "CAST(0 AS DOUBLE)", "CAST(0 AS FLOAT)", "CAST(0.0 AS FLOAT)")


def require_one_of_equal_ones(value: Node, aggregate: str) -> None:
    """Refuse a value that an aggregate compares, and that differs from equal ones; Untraceable."""
    if not differs_from_equal_ones(value):
        return
    if _COLLATED.search(value.type):
        raise Untraceable(
            f"{aggregate} of texts that are equal in a collation and differ",
            f"compare the texts themselves, {aggregate}(x COLLATE UTF8_BINARY)",
        )
    raise Untraceable(
        f"{aggregate} of floating-point numbers, of which 0.0 and -0.0 are equal",
        f"add zero, {aggregate}(x + 0D), so that -0.0 and 0.0 are one value",
    )


def require_no_equal_ones(values: Sequence[Node], what: str) -> None:
    """Refuse rows brought together (``what``) by values that are equal and differ. Untraceable.

    Which of them stands for all is chance.
    """
    if any(map(differs_from_equal_ones, values)):
        raise Untraceable(
            f"{what} by texts that are equal in a collation, or by 0.0 and -0.0, which are equal and differ",
            "group by the texts themselves, x COLLATE UTF8_BINARY, or by numbers with zero added, GROUP BY x + 0D",
        )


def differs_from_equal_ones(value: Node) -> bool:
    """Whether a value may differ from another one that is equal to it."""
    if value.kind == "CreateNamedStruct":
        return any(map(differs_from_equal_ones, value.children[1::2]))
    if _has_one_zero(value):
        return False
    type_name = value.type
    return _FLOATS.search(type_name) is not None or _COLLATED.search(type_name) is not None


def _has_one_zero(value: Node) -> bool:
    """Whether the value is ``x + 0D``, which is 0.0 of both zeros, or was a number of another kind."""
    if value.kind == "Cast":
        return value.children[0].type.startswith(_NUMBERS) and not value.type.startswith("string")
    return value.kind == "Add" and any(side.sql in _ZEROS for side in value.children)
