"""The keys that open personal fields, as the options of a command give them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

import eventstore
from eventstore import MasterKeys
from eventstore.erasure import KeyStore
from eventstore.errors import DeclarationError
from factfold.cli.definitions import load_definition

if TYPE_CHECKING:
    pass

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
    typer.Option(
        "--keys-url",
        envvar=["FACTFOLD_KEYS_URL", "FACTFOLD_STORE_URL"],
        help="SQLAlchemy URL of the event store with those keys.",
    ),
]
KeyStoreOption = Annotated[
    str | None,
    typer.Option("--key-store", help="module:name of the key store, if keys are not in the event store."),
]


@contextmanager
def open_keys(master_keys: str | None, url: str | None) -> Iterator[eventstore.SqlKeyStore | None]:
    """The key store of an event store, None without master keys or without a store."""
    if master_keys is None or url is None:
        yield None
        return

    with eventstore.SqlKeyStore(url, MasterKeys.parse(master_keys)) as keys:
        yield keys


def named_keys(key_store: str | None, master_keys: str | None) -> KeyStore | MasterKeys | None:
    """Return the keys that options name: a key store goes before master keys; DeclarationError."""
    if key_store is not None:
        return load_key_store(key_store)
    if not master_keys:
        return None

    return MasterKeys.parse(master_keys)


def load_key_store(spec: str) -> KeyStore:
    """Return the key store that `module:name` names; DeclarationError where it is none."""
    key_store = load_definition(spec, object, what="key store", example="shop.keys:key_store")
    if isinstance(key_store, KeyStore) and not isinstance(key_store, type):
        return key_store
    raise DeclarationError(
        f"{spec!r} is no key store", remedy="name an object with the methods of eventstore.erasure.KeyStore", place=spec
    )
