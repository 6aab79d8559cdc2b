"""Keys of records as the texts by which a comparison knows them."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa

from projections import Table
from projections.stores.record_keys import key_decoder, key_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7"),
        (True, "true"),
        (Decimal("1.500"), "1.5"),
        (Decimal("-0.00"), "0"),
        (Decimal("100"), "100"),
        (Decimal("12345678901234567890123456789.10"), "12345678901234567890123456789.1"),
        (b"\x00\xff", "00ff"),
        (dt.date(2024, 2, 29), "2024-02-29"),
        (dt.datetime(2024, 1, 2, 3, 4, 5), "2024-01-02 03:04:05"),
        (dt.datetime(2024, 1, 2, 3, 4, 50, 500000, dt.UTC), "2024-01-02 03:04:50.5"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ("a b", "a b"),
    ],
)
def test_one_value_has_one_text(value: Any, text: str) -> None:
    assert key_text(value) == text


def test_the_key_of_a_record_is_read_by_the_types_of_the_table() -> None:
    columns = [sa.Column(n, t, primary_key=True) for n, t in (("b", sa.Uuid), ("a", sa.Numeric(5, 2)))]
    table = Table.from_changelog(sa.Table("t", sa.MetaData(), *columns), topic="t.public.t")
    key = {"a": "1.50", "b": "00000000-0000-0000-0000-000000000001"}
    assert key_decoder(table)(json.dumps(key).encode(), "here") == (key["b"], "1.5")
