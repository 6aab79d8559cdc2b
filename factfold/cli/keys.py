"""The keys that open personal fields, as the options of a command give them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import eventstore
from eventstore import MasterKeys
from eventstore.erasure import KeyStore
from eventstore.errors import DeclarationError, KeysMissing
from factfold.cli.definitions import load_definition
from factfold.cli.options import option, setting

_MASTER_KEYS = "name:base64[,name:base64…], the new one first."
MasterKeysOption = Annotated[str, setting("--master-keys", _MASTER_KEYS, show_default=False, show_envvar=True)]
MasterKeysIfAny = Annotated[str | None, setting("--master-keys", f"To open personal fields: {_MASTER_KEYS}")]
KeysUrl = Annotated[
    str | None,
    setting(
        "--keys-url", "SQLAlchemy URL of the event store with those keys.",
        envvar=["FACTFOLD_KEYS_URL", "FACTFOLD_STORE_URL"]
    )
]  # fmt: skip
KeyStoreOption = Annotated[
    str | None, option("--key-store", "module:name of the key store, if keys are not in the event store.")
]


@dataclass(frozen=True)
class StoredKeys:
    """Keys that an event store holds."""

    master_keys: MasterKeysIfAny = None
    keys_url: KeysUrl = None

    @contextmanager
    def opened(self, own: str | None = None) -> Iterator[eventstore.SqlKeyStore | None]:
        """Open the key store of an event store, or of an own one; None without master keys or without a store."""
        url = self.keys_url or own
        if self.master_keys is None or url is None:
            yield None
            return
        with eventstore.SqlKeyStore(url, MasterKeys.parse(self.master_keys)) as keys:
            yield keys


@dataclass(frozen=True)
class NamedKeys:
    """Keys of a store: its own by their master keys, or those of another key store."""

    master_keys: MasterKeysIfAny = None
    key_store: KeyStoreOption = None

    @property
    def keys(self) -> KeyStore | MasterKeys | None:
        """The keys that options name: a key store goes before master keys; DeclarationError."""
        if self.key_store is not None:
            return load_key_store(self.key_store)
        return MasterKeys.parse(self.master_keys) if self.master_keys else None


@dataclass(frozen=True)
class ShownKeys(NamedKeys):
    """Keys to show personal values with. Without --show-personal none is used, whatever the environment holds."""

    show_personal: Annotated[
        bool, option("--show-personal", "Open personal values with the keys. Otherwise they are masked.")
    ] = False

    @property
    def of_store(self) -> KeyStore | MasterKeys | None:
        """The keys to open a store with; KeysMissing."""
        if not self.show_personal:
            return None
        if (keys := self.keys) is None:
            raise self._missing("--master-keys (FACTFOLD_MASTER_KEYS) or --key-store")
        return keys

    @staticmethod
    def _missing(options: str) -> KeysMissing:
        return KeysMissing("--show-personal needs keys, and there are none", remedy=f"name them: {options}")


@dataclass(frozen=True)
class TopicKeys(ShownKeys):
    """Keys to show personal values of stores and topics with."""

    keys_url: KeysUrl = None

    @contextmanager
    def of_topics(self) -> Iterator[KeyStore | None]:
        """The keys to open records of topics with; KeysMissing."""
        if not self.show_personal:
            yield None
        elif self.key_store is not None:
            yield load_key_store(self.key_store)
        else:
            with StoredKeys(self.master_keys, self.keys_url).opened() as keys:
                if keys is None:
                    raise self._missing("--master-keys and --keys-url, the store that has the keys, or --key-store")
                yield keys


def load_key_store(spec: str) -> KeyStore:
    """Return the key store that `module:name` names; DeclarationError where it is none."""
    key_store = load_definition(spec, object, what="key store", example="shop.keys:key_store")
    if isinstance(key_store, KeyStore) and not isinstance(key_store, type):
        return key_store
    raise DeclarationError(
        f"{spec!r} is no key store",
        remedy="name an object with the methods of eventstore.personal.sealing.KeyStore",
        place=spec,
    )
