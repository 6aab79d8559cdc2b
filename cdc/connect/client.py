"""Kafka Connect's REST interface, typed: every call has a timeout, every failure a cause and a remedy."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, Final, Literal, TypeVar
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit, urlunsplit

import requests
import stamina
from pydantic import SecretStr

from cdc.connect.failures import remedy_for, short_message
from cdc.connect.status import (
    ConfigProblem,
    ConnectorStatus,
    SourceOffset,
    WorkerHealth,
    each_of,
    names_of,
    overview_of,
)
from cdc.connectors.base import setting
from cdc.connectors.secrets import revealed
from cdc.errors import CdcError, ConnectRejected, ConnectUnavailable, InvalidConnector, UnknownConnector
from eventstore.closing import Closing

# A worker answers after 90 s at the latest; validating a connector opens a database connection.
REQUEST_TIMEOUT: Final = 30.0
# A rebalance of a small cluster takes about 3 s, a worker's start about 10.
PATIENCE: Final = 30.0
_MAX_ATTEMPTS: Final = 60
_CONNECTION_TIMEOUT: Final = 3.05
# Out of "…SSLError(1, '[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)')…".
_TLS_REASON = re.compile(r"\[\w+: \w+\] (.*?)\.? \(_ssl")
T = TypeVar("T")
InitialState = Literal["RUNNING", "PAUSED", "STOPPED"]
Params = Mapping[str, str | Sequence[str]]
_TRANSIENT_STATUS: Final = frozenset({409, 502, 503, 504})
_TRANSIENT_WORDS: Final = ("timed out", "rebalance is expected", "Failed to modify offsets for source connector")


class _Again(Exception):
    """An answer worth asking for again; carries the error to raise when patience ends."""

    def __init__(self, error: CdcError) -> None:
        super().__init__(error.message)
        self.error = error

    __repr__ = Exception.__str__  # which a log shows


class ConnectClient(Closing):
    """A Kafka Connect cluster, reached through one worker's URL.

    Starting workers, rebalances and lost connections are tried again. Raises InvalidConnector for wrong arguments,
    ConnectUnavailable if no worker answers or TLS fails, ConnectRejected if a worker refuses or redirects.

    Args:
        url: The worker's URL. A login in it becomes `auth`.
        timeout: Seconds for one request.
        patience: Seconds for all attempts of one call.
        auth: User and password of basic authentication, never shown.
        verify: A file of certificate authorities, or False for none.
        certificate: A client certificate, as one file or a pair of files.
        headers: Headers of every request, never shown and never sent to another host.

    Examples:
        >>> client = ConnectClient("https://connect:8083", verify="ca.pem")
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = REQUEST_TIMEOUT,
        patience: float = PATIENCE,
        auth: tuple[str, str | SecretStr] | None = None,
        verify: bool | str = True,
        certificate: str | tuple[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.url, credentials = without_password(url)
        self._timeout = timeout
        self.patience = patience
        self._session = requests.Session()
        # A proxy of the environment has no business between us and a worker on this machine or network.
        self._session.trust_env = False
        self._session.auth = credentials if auth is None else (auth[0], revealed(auth[1]))
        self._session.verify, self._session.cert = verify, certificate
        self._session.headers.update(headers or {})

    def __repr__(self) -> str:
        return f"ConnectClient({self.url!r})"

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def version(self) -> str:
        """Return the worker's version."""
        return self._read("GET", "/", lambda body: str(body["version"]))

    def health(self) -> WorkerHealth:
        """Say whether the worker is ready. Asks once, so that a caller can poll."""
        try:
            response = self._send("GET", "/health", params={}, body=None)
        except _Again as again:
            return WorkerHealth(healthy=False, message=again.error.message)
        return WorkerHealth(healthy=response.ok, message=_message(response))

    def plugins(self) -> tuple[str, ...]:
        """Return the classes of connectors that the worker can load."""
        return self._read("GET", "/connector-plugins", each_of(lambda plugin: str(plugin["class"])))

    def validate(self, config: Mapping[str, str]) -> tuple[ConfigProblem, ...]:
        """Return what the worker finds wrong with a configuration, the name included. Nothing is stored."""
        plugin = quote(config["connector.class"].rpartition(".")[2], safe="")
        path = f"/connector-plugins/{plugin}/config/validate"
        return self._read("PUT", path, ConfigProblem.all_of, body=dict(config))

    def connectors(self) -> tuple[str, ...]:
        """Return the names of all connectors, sorted."""
        return self._read("GET", "/connectors", names_of)

    def overview(self) -> dict[str, tuple[dict[str, str], ConnectorStatus]]:
        """Return the configuration and the status of every connector, by name, in one request."""
        return self._read("GET", "/connectors", overview_of, params={"expand": ["info", "status"]})

    def config(self, name: str) -> dict[str, str]:
        """Return a connector's configuration as the worker stores it. Raises UnknownConnector."""
        return self._read("GET", _path(name, "config"), dict)

    def create(self, name: str, config: Mapping[str, str], *, state: InitialState = "RUNNING") -> None:
        """Create a connector. Raises ConnectRejected if the configuration is wrong, or another connector has the name.

        A connector of exactly this configuration may exist: then an earlier answer was lost.
        """
        whole = {"name": name, **config}
        body = {"name": name, "config": whole, "initial_state": state}
        try:
            with self._reasons(whole):
                self._call("POST", "/connectors", body=body)
        except ConnectRejected as error:
            if error.status != HTTPStatus.CONFLICT or self.config(name) != whole:
                raise

    def put_config(self, name: str, config: Mapping[str, str]) -> dict[str, str]:
        """Create a connector or replace its configuration. Return it as the worker stores it."""
        with self._reasons({"name": name, **config}):
            return self._read("PUT", _path(name, "config"), lambda body: dict(body["config"]), body=dict(config))

    def status(self, name: str) -> ConnectorStatus:
        """Return the state of a connector and its tasks. Raises UnknownConnector."""
        return self._read("GET", _path(name, "status"), ConnectorStatus.of)

    def offsets(self, name: str) -> tuple[SourceOffset, ...]:
        """Return the offsets of a connector. Raises UnknownConnector."""
        return self._read("GET", _path(name, "offsets"), lambda body: each_of(SourceOffset.of)(body["offsets"]))

    def restart(self, name: str, *, include_tasks: bool = True, only_failed: bool = False) -> ConnectorStatus | None:
        """Ask for a restart. Return the state that will be RESTARTING, since the worker restarts later.

        None if only the connector itself was to restart, without its tasks: Connect then returns no state.
        """
        params = {"includeTasks": setting(include_tasks), "onlyFailed": setting(only_failed)}
        if not (include_tasks or only_failed):
            self._call("POST", _path(name, "restart"), params=params)
            return None
        return self._read("POST", _path(name, "restart"), ConnectorStatus.of, params=params)

    def pause(self, name: str) -> None:
        """Ask for a pause: tasks stay and do nothing."""
        self._call("PUT", _path(name, "pause"))

    def stop(self, name: str) -> None:
        """Ask for a stop: tasks end, the configuration stays."""
        self._call("PUT", _path(name, "stop"))

    def resume(self, name: str) -> None:
        """Ask a paused or stopped connector to run."""
        self._call("PUT", _path(name, "resume"))

    def delete(self, name: str) -> None:
        """Delete a connector and its configuration. Raises UnknownConnector. The source's slot stays."""
        self._call("DELETE", _path(name))

    def delete_offsets(self, name: str) -> None:
        """Delete the offsets of a STOPPED connector: its next start takes an initial snapshot."""
        self._call("DELETE", _path(name, "offsets"))

    @contextmanager
    def _reasons(self, config: Mapping[str, str]) -> Iterator[None]:
        """Validate a configuration if the worker fails over it, as Connect 4.3 does with MySQL's connector 3.6.1."""
        try:
            yield
        except ConnectRejected as error:
            problems = self.validate(config) if "configValue()" in error.message else ()
            if not problems:
                raise
            raise ConnectRejected(
                f"Kafka Connect refused: {problems[0].key}: {short_message(problems[0].message)}",
                remedy=remedy_for(problems[0].message),
                place=error.place,
                status=error.status,
            ) from error

    def _read(
        self, method: str, path: str, of: Callable[[Any], T], *, params: Params | None = None, body: object = None
    ) -> T:
        """Ask, and make an object of the answer; ConnectRejected where nothing can be made of it."""
        response = self._call(method, path, params=params, body=body)
        try:
            return of(response.json())
        except requests.JSONDecodeError as error:
            raise self._stranger(response, "sent no JSON") from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise self._stranger(response, "sent JSON of another kind") from error

    def _stranger(
        self,
        response: requests.Response,
        does: str,
        remedy: str = "check the host and port of the Connect worker",
    ) -> ConnectRejected:
        return ConnectRejected(
            f"what answers at {self.url} is not Kafka Connect: it {does}",
            remedy=remedy,
            place=_place(response),
            status=response.status_code,
        )

    def _redirected(self, response: requests.Response) -> ConnectRejected:
        try:
            target = urlsplit(urljoin(self.url, response.headers.get("Location", "")))
            host = f"{target.scheme}://{target.netloc.rpartition('@')[2]}"
        except ValueError:
            host = "an address that is none"
        remedy = "give the URL of the Connect worker itself, with the scheme and host that it is reached by"
        return self._stranger(response, f"redirects to {host}, which is not followed", remedy)

    def _call(self, method: str, path: str, *, params: Params | None = None, body: object = None) -> requests.Response:
        deadline = time.monotonic() + self.patience
        try:
            for attempt in stamina.retry_context(
                on=_Again, attempts=_MAX_ATTEMPTS, timeout=self.patience, wait_initial=0.2, wait_max=2.0
            ):
                with attempt:
                    return self._checked(self._send(method, path, params=params or {}, body=body, by=deadline))
        except _Again as again:
            raise again.error from again.__cause__
        raise AssertionError("a retry ended without an answer or an error")

    def _send(
        self,
        method: str,
        path: str,
        *,
        params: Params,
        body: object,
        by: float | None = None,
    ) -> requests.Response:
        left = self._timeout if by is None else max(0.1, min(self._timeout, by - time.monotonic()))
        try:
            response = self._session.request(
                method,
                self.url + path,
                params=params,
                json=body,
                timeout=(_CONNECTION_TIMEOUT, left),
                # Workers pass requests on by themselves. A redirect would take our headers to another host, and
                # make a GET of a change, whose answer would then be taken for Connect's.
                allow_redirects=False,
            )
        except requests.exceptions.SSLError as error:
            # A worker that goes down may end a connection in the middle of its greeting.
            refused = self._untrusted(method, path, error)
            raise (_Again(refused) if "EOF" in str(error) else refused) from error
        except requests.ReadTimeout as error:
            raise _Again(self._slow(method, path, left)) from error
        except (requests.ConnectionError, requests.Timeout) as error:
            raise _Again(self._unavailable(method, path)) from error
        except requests.exceptions.InvalidHeader:
            # Its words hold the header, which may be secret.
            raise InvalidConnector(
                "a header for the Connect worker cannot be sent: it begins with a space or holds an end of line",
                remedy="check the names and values of headers: a secret read from a file often has a line end",
                place=self.url,
            ) from None
        except requests.RequestException as error:
            raise self._unavailable(method, path) from error
        except OSError as error:
            # Such a file is looked for with the first request, and its absence is not one of requests' own errors.
            raise InvalidConnector(
                f"a certificate for the Connect worker cannot be read: {short_message(str(error))}",
                remedy="check the paths in verify and certificate",
                place=self.url,
            ) from error
        if HTTPStatus.MULTIPLE_CHOICES <= response.status_code < HTTPStatus.BAD_REQUEST:
            raise self._redirected(response)
        return response

    def _unavailable(self, method: str, path: str) -> ConnectUnavailable:
        return ConnectUnavailable(
            f"no Kafka Connect worker answers at {self.url}",
            remedy="start the worker, or check the URL (factfold stack status shows the local one)",
            place=f"{method} {path}",
        )

    def _slow(self, method: str, path: str, seconds: float) -> ConnectUnavailable:
        return ConnectUnavailable(
            f"the Kafka Connect worker at {self.url} took a request and did not answer it within {seconds:.0f} s",
            remedy="read the worker's log. A configuration is checked by connecting to its database: see that the "
            "worker can reach it, or allow more time",
            place=f"{method} {path}",
        )

    def _untrusted(self, method: str, path: str, error: Exception) -> ConnectUnavailable:
        reason = _TLS_REASON.search(str(error))
        return ConnectUnavailable(
            f"no TLS with the Kafka Connect worker at {self.url}: {reason.group(1) if reason else 'refused'}",
            remedy="give the file of its certificate authority as verify=, and a client certificate as certificate= if "
            "it asks for one. The worker's certificate has to name the URL's host. Use http: if it has no TLS",
            place=f"{method} {path}",
        )

    def _checked(self, response: requests.Response) -> requests.Response:
        if response.ok and (response.content or b"{")[:1] in b'{["':
            return response
        if response.ok:
            raise self._stranger(response, "sent no JSON")
        error = _rejection(response)
        raise _Again(error) if _is_transient(response) else error


def _path(name: str, *parts: str) -> str:
    return "/".join(("/connectors", quote(name, safe=""), *parts))


def _message(response: requests.Response) -> str:
    try:
        body = response.json()
    except requests.JSONDecodeError:
        return response.reason or f"HTTP {response.status_code}"
    return str(body.get("message", body)) if isinstance(body, dict) else str(body)


def _is_transient(response: requests.Response) -> bool:
    message = _message(response)
    if response.status_code == 404:
        # A worker that is starting knows none of its own paths; afterwards a 404 names what is missing.
        return message in ("HTTP 404 Not Found", "Not Found")
    if response.status_code == HTTPStatus.INTERNAL_SERVER_ERROR:
        # During a rebalance, requests that read a configuration or offsets get a 500, and other requests a 409.
        # Offsets are written in a transaction that a task on its way out may end. The same ones can be set again.
        return any(words in message for words in _TRANSIENT_WORDS)
    if response.status_code == HTTPStatus.CONFLICT and "already exists" in message:
        return False
    return response.status_code in _TRANSIENT_STATUS


def _rejection(response: requests.Response) -> ConnectRejected:
    kind = UnknownConnector if response.status_code == 404 else ConnectRejected
    message = short_message(_message(response))
    return kind(
        f"Kafka Connect refused: {message}",
        remedy=remedy_for(message),
        place=_place(response),
        status=response.status_code,
    )


def _place(response: requests.Response) -> str:
    return f"{response.request.method} {response.request.path_url}"


def without_password(url: str) -> tuple[str, tuple[str, str] | None]:
    """Return a worker's URL without user and password, and these; InvalidConnector for what is no URL of a worker."""
    parts = _url_parts(url.rstrip("/"))
    # A slash, a question mark or a number sign ended the host in the middle of a password.
    if parts is None or "@" in f"{parts.path}{parts.query}{parts.fragment}":
        # Raised here, and not above: the words of what was wrong may hold the URL, and with it a password.
        raise InvalidConnector(
            "the URL of the Connect worker cannot be read",
            remedy="write https://USER:PASSWORD@HOST:PORT, with @ / # ? of a password as %40 %2F %23 %3F",
            place="url",
        )
    if parts.username is None:
        return url.rstrip("/"), None
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=host)), (unquote(parts.username), unquote(parts.password or ""))


def _url_parts(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts if parts.scheme in ("http", "https") and parts.hostname else None
