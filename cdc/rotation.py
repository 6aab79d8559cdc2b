"""A new password for a connector's role while rows go on being written: none is lost, none comes twice.

A server asks for the password when a session begins, so the connector streams on over its old session until it is
restarted; stopped and started again, it goes on in its slot at the offset it committed with its last records.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from pydantic import SecretStr

from cdc.catalogue import typed_errors
from cdc.connectors.postgres import PostgresConnector
from cdc.control import TIMEOUT, move, restart
from cdc.errors import ConnectRejected, InvalidConnector
from cdc.failures import short_message
from cdc.grants import set_password
from cdc.secrets import is_reference, replace_secret, revealed
from cdc.status import PAUSED, STOPPED, ConnectorStatus

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cdc.connect import ConnectClient

_KEY: Final = "database.password"
# 256 bits: nobody guesses it, and nobody has to type it.
_BYTES: Final = 32


def rotate_password(
    client: ConnectClient,
    connector: PostgresConnector,
    *,
    source: Engine,
    password: str | SecretStr | None = None,
    write: Callable[[SecretStr], None] | None = None,
    timeout: float = TIMEOUT,
) -> tuple[ConnectorStatus, ...]:
    """Give a connector's role a new password, in the database and behind its reference, and bring it into use.

    The password is made up unless it is given. It is written into the file that the connector's reference names, or by
    `write` where it is kept elsewhere, within the transaction that changes the role: if one fails, neither happened.
    Then the worker tries it, and every connector of the cluster with that reference is restarted, one after another,
    and waited for, `timeout` seconds each; their statuses are returned. One that is PAUSED or STOPPED stays so.

    Called again after a failure it begins anew and ends well; meanwhile connectors stream on over their old sessions.
    `source` is an engine of the database whose login may change the role: the role's own may. Errors: InvalidConnector
    (no reference, or another one runs), SourceNotReady, ConnectRejected (the worker does not get in with the new
    password: nothing was restarted), ConnectUnavailable, ConnectorFailed, ConnectorTimeout.
    """
    reference = _reference(client, connector)
    secret = SecretStr(secrets.token_urlsafe(_BYTES)) if password is None else SecretStr(revealed(password))
    with typed_errors(source), source.begin() as connection:
        set_password(connection, connector.user, secret)
        if write is None:
            replace_secret(reference, secret)
        else:
            write(secret)
    sharing = _sharing(client, reference)
    _try(client, connector)
    return tuple(_use(client, name, state, source=source, timeout=timeout) for name, state in sharing.items())


def _reference(client: ConnectClient, connector: PostgresConnector) -> str:
    declared = connector.config()[_KEY]
    if not is_reference(declared):
        raise InvalidConnector(
            f"connector {connector.name!r} carries its password in clear: there is nothing to write a new one to",
            remedy="declare it with a reference of cdc.write_secrets and apply it, then rotate",
            place=_KEY,
        )
    running = client.overview().get(connector.name)
    if running is not None and running[0].config.get(_KEY) != declared:
        raise InvalidConnector(
            f"connector {connector.name!r} runs with another {_KEY} than is declared",
            remedy="apply the declaration first (factfold cdc plan shows the difference)",
            place=_KEY,
        )
    return declared


def _sharing(client: ConnectClient, reference: str) -> dict[str, str]:
    overview = client.overview().items()
    return {name: status.state for name, (info, status) in overview if info.config.get(_KEY) == reference}


def _try(client: ConnectClient, connector: PostgresConnector) -> None:
    """Let the worker log in with what it reads behind the reference now, before a session that works is given up."""
    problems = client.validate({"name": connector.name, **connector.config()})
    if not problems:
        return
    raise ConnectRejected(
        f"the worker does not get into the database: {short_message(problems[0].message)}",
        remedy="let the worker read the new password behind the connector's reference, and rotate again; until it is "
        "restarted, the connector streams on over its old session",
        place=problems[0].key,
        status=HTTPStatus.BAD_REQUEST,
    )


def _use(client: ConnectClient, name: str, state: str, *, source: Engine, timeout: float) -> ConnectorStatus:
    if state == STOPPED:
        return client.status(name)
    if state == PAUSED:
        # Its task holds the old password: without it, the task that comes with the resumption reads the new one.
        move(client, name, STOPPED, timeout=timeout)
        return move(client, name, PAUSED, timeout=timeout)
    return restart(client, name, source=source, timeout=timeout)
