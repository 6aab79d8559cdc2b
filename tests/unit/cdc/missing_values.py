"""A column of each type that varies in length, and what a text that stands for a missing value is there."""

from __future__ import annotations

import base64
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import HSTORE, JSONB

from cdc.changes.change_records import own_placeholder, uuid_of

OWN = own_placeholder("shop")


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


# By the column's name: its type; and of a text, what is sent for it, and the value that this is if a user wrote it.
FORMS: dict[str, tuple[Any, Any]] = {
    "text": (sa.Text(), lambda text: (text, text)),
    "raw": (sa.LargeBinary(), lambda text: (in_base64(text), text.encode())),
    "doc": (JSONB(), lambda text: (text, None)),  # a text that is no JSON can only be a placeholder
    "texts": (sa.ARRAY(sa.Text()), lambda text: ([text], [text])),
    "numbers": (sa.ARRAY(sa.Integer()), lambda text: (list(text.encode()), list(text.encode()))),
    "bigs": (sa.ARRAY(sa.BigInteger()), lambda text: (list(text.encode()), list(text.encode()))),
    "uids": (sa.ARRAY(sa.Uuid()), lambda text: ([str(uuid_of(text))], [uuid_of(text)])),
    "words": (HSTORE(), lambda text: ({text: text}, {text: text})),
}
TABLE = sa.Table(
    "t", sa.MetaData(), sa.Column("id", sa.Text, primary_key=True), *(sa.Column(c, k) for c, (k, _) in FORMS.items())
)  # fmt: skip
