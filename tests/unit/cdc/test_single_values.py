"""A single value where several are declared is refused: a text would be read as its letters."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

import cdc
from cdc import transforms
from cdc.errors import InvalidConnector
from cdc.transforms import Filter, Flatten, RecordPredicate, Transform
from tests.rows import each_row

DECLARATIONS = [
    *(value for value in vars(transforms).values() if inspect.isclass(value) and issubclass(value, Transform)),
    *(getattr(cdc, name) for name in cdc.__all__ if name.endswith("Source") or name.startswith("Mirror")),
]
SEVERAL = [
    (declaration, field.name)
    for declaration in DECLARATIONS
    if dataclasses.is_dataclass(declaration)
    for field in dataclasses.fields(declaration)
    if str(field.type).startswith("tuple[")
]


def required(declaration: Any) -> dict[str, Any]:
    """A value for each field without a default: texts, and tuples of one text."""
    missing = dataclasses.MISSING
    fields = [f for f in dataclasses.fields(declaration) if f.default is missing and f.default_factory is missing]
    texts = {f.name: "shop" if f.name == "databases" else "shop.customers" for f in fields}
    return {f.name: (texts[f.name],) if str(f.type).startswith("tuple[") else "shop" for f in fields}


@each_row(("declaration", "field"), SEVERAL)
def test_one_text_is_refused_with_the_tuple_to_write(declaration: Any, field: str) -> None:
    secrets = (
        {"allow_literal_secrets": True} if "allow_literal_secrets" in inspect.signature(declaration).parameters else {}
    )
    with pytest.raises(InvalidConnector) as refused:
        declaration(**(required(declaration) | {field: "public.customers"} | secrets))
    assert f"{field}=('public.customers',)" in (refused.value.remedy or "")


def test_all_declarations_are_looked_at() -> None:
    names = {f"{declaration.__name__}.{field}" for declaration, field in SEVERAL}
    assert {"Flatten.fields", "Mask.fields", "PostgresSource.tables", "MirrorCheckpoint.groups"} <= names
    assert {"PostgresSource.transforms", "OutboxSource.transforms", "MirrorSource.topics"} <= names


def test_one_transform_is_refused_and_so_are_those_of_no_kind() -> None:
    shop = {"name": "shop", "host": "db", "database": "shop", "user": "u", "password": "${file:/run/secrets/s:p}"}
    with pytest.raises(InvalidConnector, match="takes several values"):
        cdc.PostgresSource(**shop, topic_prefix="shop", tables=("public.a",), transforms=Flatten())  # type: ignore[arg-type]
    for bare in (Transform, RecordPredicate):
        with pytest.raises(InvalidConnector, match="of no kind"):
            bare()
    with pytest.raises(InvalidConnector, match="drops every record"):
        Filter()
