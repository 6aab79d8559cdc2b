"""MongoDB through Debezium 3.6 and change streams: collections become changelog topics."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import parse_qsl

from pydantic import SecretStr

from cdc.connectors.catalogue import holds_secret
from cdc.connectors.changelog import ChangelogConnector
from cdc.connectors.debezium import exactly
from cdc.connectors.secrets import revealed
from eventstore.errors import InvalidIdentifier

_COLLECTION = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+")
_SCHEMES: Final = ("mongodb://", "mongodb+srv://")
_URL: Final = "mongodb.connection.string"


@dataclass(frozen=True, kw_only=True, repr=False)
class MongoSource(ChangelogConnector):
    """Collections of a replica set or a sharded cluster as changelog topics `{topic_prefix}.{database}.{collection}`.

    Documents are texts of MongoDB's extended JSON, which names the types of values, whatever the encoding.

    Attributes:
        connection_string: Begins with mongodb:// or mongodb+srv://. With a login or a secret it must be a reference,
            unless `allow_literal_secrets`.
        collections: The collections, as `database.collection`.
        user: The user, with `password`, if they are not in the connection string.
        capture_mode: Debezium's mode, which decides what `before` and `after` hold. `before` needs images that the
            server stores.

    Examples:
        >>> MongoSource(name="shop_documents", topic_prefix="shop", collections=("crm.customers",),
        ...             connection_string="mongodb://db/?replicaSet=rs0").topics
        ('shop.crm.customers',)
    """

    JAVA_CLASS = "io.debezium.connector.mongodb.MongoDbConnector"
    CATALOGUE = "mongodb_keys.tsv"
    DATABASE = "MongoDB"
    OWNED = ChangelogConnector.OWNED | {
        _URL,
        "mongodb.user",
        "mongodb.password",
        "collection.include.list",
        "capture.mode",
    }

    connection_string: str | SecretStr = field(repr=False)
    collections: tuple[str, ...]
    user: str = ""
    password: str | SecretStr = field(default="", repr=False)
    capture_mode: Literal[
        "change_streams",
        "change_streams_update_full",
        "change_streams_with_pre_image",
        "change_streams_update_full_with_pre_image",
    ] = "change_streams_update_full"

    def __post_init__(self) -> None:
        self._settle("connection_string", self._checked_url())
        if self.password:  # the connection string may hold the login, or there is none
            self._settle("password", self._secret(self.password, "mongodb.password", "password"))
        self._some("collections", "collection")
        for name in self.collections:
            _check_collection(name, "collections")
        if self.signal_table:
            _check_collection(self.signal_table, "signal_table")
        super().__post_init__()

    @property
    def captured(self) -> tuple[str, ...]:
        """The collections as declared, `database.collection`."""
        return self.collections

    def _checked_url(self) -> SecretStr:
        text = revealed(self.connection_string)
        if text.startswith(_SCHEMES) and not _may_hold_secret(text):
            return SecretStr(text)
        return self._secret(text, _URL, "connection_string")

    def _connection(self) -> dict[str, str]:
        login = {"mongodb.user": self.user, "mongodb.password": revealed(self.password)}
        return {
            _URL: revealed(self.connection_string),
            **{key: value for key, value in login.items() if value},
        }

    def _capture(self) -> dict[str, str]:
        signals = [self.signal_table] if self.signal_table else []
        names = dict.fromkeys([*self.collections, *signals])
        return {
            "collection.include.list": ",".join(exactly([name]) for name in names),
            "capture.mode": self.capture_mode,
        }


def _may_hold_secret(url: str) -> bool:
    # A password with a slash in it ends the address for a parser, so any login will do.
    options = parse_qsl(url.partition("?")[2].replace(";", "&"), keep_blank_values=True)
    return "@" in url or any(holds_secret(key) or _holds_token(key, value) for key, value in options)


def _holds_token(option: str, value: str) -> bool:
    # Settings within a setting: AWS_SESSION_TOKEN:…
    return option.lower() == "authmechanismproperties" and holds_secret(value)


def _check_collection(name: str, place: str) -> None:
    if _COLLECTION.fullmatch(name) is None:
        raise InvalidIdentifier(
            f"collection {name[:80]!r} is not a valid name",
            remedy="write database.collection, of letters, digits, dashes and underscores",
            place=place,
        )
