"""The keys that open personal fields, as the options of a command give them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from eventstore import SqlKeyStore

_MASTER_KEYS = "name:base64[,name:base64…], the new one first."
MasterKeysOption = Annotated[
    str,
    typer.Option(
        "--master-keys", envvar="FACTFOLD_MASTER_KEYS", help=_MASTER_KEYS, show_default=False, show_envvar=True
    ),
]
MasterKeysIfAny = Annotated[
    str | None,
    typer.Option("--master-keys", envvar="FACTFOLD_MASTER_KEYS", help=f"To open personal fields: {_MASTER_KEYS}"),
]
KeysUrl = Annotated[
    str | None,
    typer.Option("--keys-url", envvar="FACTFOLD_KEYS_URL", help="SQLAlchemy URL of the event store with those keys."),
]


@contextmanager
def open_keys(master_keys: str | None, url: str | None) -> Iterator[SqlKeyStore | None]:
    """The key store of an event store, None without master keys or without a store."""
    if master_keys is None or url is None:
        yield None
        return
    from eventstore import MasterKeys, SqlKeyStore

    with SqlKeyStore(url, MasterKeys.parse(master_keys)) as keys:
        yield keys
