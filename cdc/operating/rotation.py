"""A new password for a connector's role while rows go on being written: none is lost, none comes twice.

A server asks for the password when a session begins, so a connector streams on over its old session until it is
restarted; stopped and started again, it goes on in its slot at the offset it committed with its last records.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeVar

from pydantic import SecretStr

from cdc.connect.failures import short_message
from cdc.connect.status import PAUSED, STOPPED, ConnectorStatus
from cdc.connectors.postgres_connector import PostgresConnector
from cdc.connectors.secrets import is_reference, replace_secrets, revealed
from cdc.errors import ConnectRejected, InvalidConnector
from cdc.operating.control import TIMEOUT, restart_connector, set_connector_state
from cdc.source.catalogue import server_facts, typed_errors
from cdc.source.grants import set_password

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cdc.connect.client import ConnectClient
    from cdc.connect.status import ConfigProblem

T = TypeVar("T")
_KEY: Final = "database.password"
_DATABASE: Final = "database.dbname"
# One role on one server has one password.
_ROLE: Final = ("connector.class", "database.hostname", "database.port", "database.user")
# 256 bits: it cannot be guessed, and is never typed.
_BYTES: Final = 32
_OWN: Final = (
    "give it a reference of its own (factfold cdc prepare writes the file) or the same host, port and user, "
    "apply it, then rotate"
)


@dataclass(frozen=True, slots=True)
class _Login:
    """A connector as it logs in; `state` None for one that is declared and not in the cluster."""

    name: str
    config: Mapping[str, str]
    state: str | None

    @property
    def role(self) -> tuple[str, ...]:
        return tuple(self.config.get(key, "") for key in _ROLE)

    @property
    def reference(self) -> str:
        return self.config.get(_KEY, "")

    def __str__(self) -> str:
        _, host, port, user = self.role
        return f"{user}@{host}:{port}"


def rotate_password(
    client: ConnectClient,
    connector: PostgresConnector,
    *,
    source: Engine,
    others: Iterable[PostgresConnector] = (),
    password: str | SecretStr | None = None,
    write: Callable[[SecretStr], None] | None = None,
    timeout: float = TIMEOUT,
) -> tuple[ConnectorStatus, ...]:
    """Give a connector's role a new password, in the database and behind its references, and bring it into use.

    All connectors of the cluster that log in as the role take part. The password is written within the transaction that
    changes the role: if a file cannot be written, nothing changes. The worker then tries it, and the connectors are
    restarted one after another. PAUSED and STOPPED ones stay so. After a failure, call it again: connectors go on
    meanwhile by their old sessions.

    Args:
        client: The worker.
        connector: The connector.
        source: An engine whose login may change the role. The role's own login may.
        others: Further declared connectors of the role, which may not exist.
        password: The password, by default a generated one.
        write: Stores the password, if the references do not name files.
        timeout: Seconds for each restart.

    Returns:
        The statuses of the connectors.

    Raises:
        InvalidConnector: The password is no reference, another one runs, or another role has the same reference.
        SourceNotReady: The role cannot be changed.
        ConnectRejected: The worker refuses a connector before the change, or the new password. Nothing is restarted.
        ConnectorFailed: A restarted connector failed. ConnectorTimeout: it did not run in time.
        ConnectUnavailable: No worker answered.

    Examples:
        >>> statuses = rotate_password(client, rows, source=engine)
    """
    logins = _sharing(client, [connector, *others])
    tried = first_of_each(logins, lambda login: login.reference)
    references = tuple(login.reference for login in tried)
    _refuse_several(write, references)
    for login in tried:
        _check(client, login)
    secret = SecretStr(secrets.token_urlsafe(_BYTES)) if password is None else SecretStr(revealed(password))
    with typed_errors(source), source.begin() as connection:
        database = server_facts(connection).database
        set_password(connection, connector.user, secret)
        if write is None:
            replace_secrets(references, secret)
        else:
            write(secret)
    for login in tried:
        _try(client, login)
    # No connector waits for a mark in the log of another database.
    own = [(login, source if login.config.get(_DATABASE) == database else None) for login in logins]
    return tuple(_use(client, one, source=of, timeout=timeout) for one, of in own if one.state is not None)


def _sharing(client: ConnectClient, declared: list[PostgresConnector]) -> list[_Login]:
    """The declared connectors and all of the cluster that log in as the first one does; InvalidConnector."""
    running = {name: _Login(name, config, status.state) for name, (config, status) in client.overview().items()}
    mine = [_declared(one, running.get(one.name)) for one in declared]
    logins = {one.name: one for one in [*mine, *running.values()]}
    sharing = [one for one in logins.values() if one.role == mine[0].role]
    for one in sharing:
        _require_reference(one)
    _refuse_strangers(logins.values(), sharing)
    return sharing


def _declared(connector: PostgresConnector, running: _Login | None) -> _Login:
    state = None if running is None else running.state
    declared = _Login(connector.name, {"name": connector.name, **connector.config()}, state)
    _require_reference(declared)
    for key in (*_ROLE, _KEY):
        if running is not None and running.config.get(key) != declared.config.get(key):
            raise InvalidConnector(
                f"connector {connector.name!r} runs with another {key} than is declared",
                remedy="apply the declaration first (factfold cdc plan shows the difference)",
                place=key,
            )
    return declared


def _require_reference(login: _Login) -> None:
    if not is_reference(login.reference):
        raise InvalidConnector(
            f"connector {login.name!r} has its password in clear, and no file to write a new one to",
            remedy="declare it with a reference to a secrets file, run factfold cdc prepare, then rotate",
            place=_KEY,
        )


def _refuse_strangers(logins: Iterable[_Login], sharing: list[_Login]) -> None:
    references = {login.reference for login in sharing}
    names = {login.name for login in sharing}
    for one in logins:
        if one.name not in names and any(_holds(one.config, reference) for reference in references):
            raise InvalidConnector(
                f"connector {one.name!r} reads the same secret and does not log in as {sharing[0]}: it would get a "
                "password that its login does not have",
                remedy=_OWN,
                place=one.name,
            )


def _holds(config: Mapping[str, str], reference: str) -> bool:
    """Whether any setting reads what stands behind a reference; sinks have theirs elsewhere."""
    return any(reference in value for value in config.values())


def _refuse_several(write: Callable[[SecretStr], None] | None, references: tuple[str, ...]) -> None:
    if write is not None and len(references) > 1:
        raise InvalidConnector(
            f"the role's connectors read its password behind {len(references)} references, and `write` writes one",
            remedy="declare them with one reference and apply them, then rotate",
            place=", ".join(references),
        )


def first_of_each(items: Iterable[T], key: Callable[[T], object]) -> list[T]:
    """Return the first item of each key, in their order."""
    firsts: dict[object, T] = {}
    for item in items:
        firsts.setdefault(key(item), item)
    return list(firsts.values())


def _check(client: ConnectClient, login: _Login) -> None:
    """Let the worker look at a connector before anything is changed.

    Where the database refuses the login, it names it: a commit that failed in an earlier call does that, and it is
    what this one repairs.
    """
    user = login.config["database.user"]
    problems = [problem for problem in client.validate(login.config) if user not in problem.message]
    if problems:
        what = f"the worker cannot use connector {login.name!r}, and nothing was changed"
        raise _rejected(problems[0], what, "repair the connector first, or delete it")


def _try(client: ConnectClient, login: _Login) -> None:
    """Let the worker log in with what it reads behind the reference now, before a session that works is given up."""
    if problems := client.validate(login.config):
        raise _rejected(
            problems[0],
            "the worker does not get into the database",
            "let the worker read the new password behind the connector's reference, and rotate again. Until it is "
            "restarted, the connector streams on over its old session",
        )


def _rejected(problem: ConfigProblem, what: str, remedy: str) -> ConnectRejected:
    return ConnectRejected(
        f"{what}: {short_message(problem.message)}", remedy=remedy, place=problem.key, status=HTTPStatus.BAD_REQUEST
    )


def _use(client: ConnectClient, login: _Login, *, source: Engine | None, timeout: float) -> ConnectorStatus:
    if login.state == STOPPED:
        return client.status(login.name)
    if login.state == PAUSED:
        # Its task holds the old password: without it, the task that comes with the resumption reads the new one.
        set_connector_state(client, login.name, STOPPED, timeout=timeout)
        return set_connector_state(client, login.name, PAUSED, timeout=timeout)
    return restart_connector(client, login.name, source=source, timeout=timeout)
