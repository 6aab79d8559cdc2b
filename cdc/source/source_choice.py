"""Whether a database that was given is the one that a connector reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cdc.connectors.postgres_connector import PostgresConnector

if TYPE_CHECKING:
    from sqlalchemy import Engine


def not_of(source: Engine, config: Mapping[str, str]) -> str | None:
    """Say why a database is not the source of a connector with such a configuration; None where it may be.

    The database's name tells, and the port where the host is the same. Hosts are not compared: worker and caller may
    know one server by different names.
    """
    if config.get("connector.class") != PostgresConnector.JAVA_CLASS:
        return "it does not read PostgreSQL"
    url, reads = source.url, config.get("database.dbname", "")
    given = url.database or url.username
    if given != reads:
        return f"it reads database {reads}, and the one given is {given}"
    port = str(url.port or PostgresConnector.port)
    if url.host == config.get("database.hostname") and port != config.get("database.port", port):
        return f"it reads the server at port {config['database.port']}, and the one given is at {port}"
    return None
