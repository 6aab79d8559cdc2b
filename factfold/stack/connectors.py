"""Connectors brought to a local stack, whatever addresses their declaration has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cdc.connectors.postgres_connector import PostgresConnector
from cdc.connectors.secrets import file_of, revealed

if TYPE_CHECKING:
    from cdc import Connector
    from factfold.stack.state import StackInfo


def in_stack(connector: Connector, info: StackInfo) -> Connector:
    """Return a connector to PostgreSQL with host, port and secrets folder of a stack, and another one as it is."""
    if not isinstance(connector, PostgresConnector):
        return connector
    password, secret = connector.password, file_of(revealed(connector.password))
    if secret is not None:
        password = f"${{file:{info.secrets_dir / secret[0].name}:{secret[1]}}}"
    return replace(connector, host=info.postgres.host, port=info.postgres.port, password=password)
