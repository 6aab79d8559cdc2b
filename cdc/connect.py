"""Kafka Connect's REST interface, typed: every call has a timeout, every failure a cause and a remedy."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import requests
import stamina

from cdc.errors import CdcError, ConnectRejected, ConnectUnavailable, UnknownConnector
from cdc.failures import remedy_for, short_message
from cdc.status import (
    ConfigProblem,
    ConnectorStatus,
    PluginInfo,
    SourceOffset,
    WorkerHealth,
    WorkerInfo,
)

# A worker answers after 90 s at the latest; validating a connector opens a database connection.
REQUEST_TIMEOUT: Final = 30.0
# A rebalance of a small cluster takes about 3 s, a worker's start about 10.
PATIENCE: Final = 30.0
_MAX_ATTEMPTS: Final = 60
_CONNECTION_TIMEOUT: Final = 3.05
_TRANSIENT_STATUS: Final = frozenset({409, 502, 503, 504})


class _Again(Exception):
    """An answer worth asking for again; carries the error to raise when patience ends."""

    def __init__(self, error: CdcError) -> None:
        super().__init__(error.message)
        self.error = error


class ConnectClient:
    """One Connect cluster, spoken to through one worker's URL.

    `timeout` bounds one request and `patience` all retries of one call, both in seconds. Lost connections,
    rebalances (409) and a worker that is starting (404 everywhere, 5xx) are asked again. Raises
    ConnectUnavailable when nobody answers, ConnectRejected (UnknownConnector) when a worker says no.
    """

    def __init__(self, url: str, *, timeout: float = REQUEST_TIMEOUT, patience: float = PATIENCE) -> None:
        self.url = url.rstrip("/")
        self._timeout = timeout
        self.patience = patience
        self._session = requests.Session()
        # A proxy of the environment has no business between us and a worker on this machine or network.
        self._session.trust_env = False

    def __enter__(self) -> ConnectClient:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._session.close()

    def root(self) -> WorkerInfo:
        """Return the worker's version and cluster."""
        body = self._json("GET", "/")
        return WorkerInfo(body["version"], body["commit"], body["kafka_cluster_id"])

    def health(self) -> WorkerHealth:
        """Say whether the worker is ready; asks once, so that a caller can poll."""
        try:
            response = self._send("GET", "/health", params={}, body=None)
        except _Again as again:
            return WorkerHealth(healthy=False, message=again.error.message)
        return WorkerHealth(healthy=response.ok, message=_message(response))

    def plugins(self) -> tuple[PluginInfo, ...]:
        """Return the connector classes the worker can load."""
        return tuple(
            PluginInfo(body["class"], body["type"], body.get("version", ""))
            for body in self._json("GET", "/connector-plugins")
        )

    def validate(self, config: Mapping[str, str]) -> tuple[ConfigProblem, ...]:
        """Return what the worker finds wrong with a configuration (name included), which it does not keep."""
        plugin = quote(config["connector.class"].rpartition(".")[2], safe="")
        body = self._json("PUT", f"/connector-plugins/{plugin}/config/validate", body=dict(config))
        values = (entry["value"] for entry in body["configs"])
        return tuple(ConfigProblem(value["name"], error) for value in values for error in value.get("errors", ()))

    def connectors(self) -> tuple[str, ...]:
        """Return the names of all connectors, sorted."""
        return tuple(sorted(self._json("GET", "/connectors")))

    def config(self, name: str) -> dict[str, str]:
        """Return a connector's configuration as the worker keeps it; UnknownConnector."""
        return dict(self._json("GET", _path(name, "config")))

    def create(self, name: str, config: Mapping[str, str], *, stopped: bool = False) -> None:
        """Create a connector, running or STOPPED; ConnectRejected where the configuration is wrong."""
        state = "STOPPED" if stopped else "RUNNING"
        body = {"name": name, "config": {"name": name, **config}, "initial_state": state}
        self._call("POST", "/connectors", body=body)

    def put_config(self, name: str, config: Mapping[str, str]) -> dict[str, str]:
        """Create a connector or replace its configuration; returns it as the worker keeps it."""
        return dict(self._json("PUT", _path(name, "config"), body=dict(config))["config"])

    def status(self, name: str) -> ConnectorStatus:
        """Return the state of a connector and its tasks; UnknownConnector."""
        return ConnectorStatus.of(self._json("GET", _path(name, "status")))

    def offsets(self, name: str) -> tuple[SourceOffset, ...]:
        """Say how far a connector has come; UnknownConnector."""
        body = self._json("GET", _path(name, "offsets"))
        return tuple(SourceOffset(entry["partition"], entry["offset"]) for entry in body["offsets"])

    def restart(self, name: str, *, include_tasks: bool = True, only_failed: bool = False) -> None:
        """Ask for a restart; the worker does it later."""
        params = {"includeTasks": str(include_tasks).lower(), "onlyFailed": str(only_failed).lower()}
        self._call("POST", _path(name, "restart"), params=params)

    def pause(self, name: str) -> None:
        """Ask for a pause: tasks stay and do nothing."""
        self._call("PUT", _path(name, "pause"))

    def stop(self, name: str) -> None:
        """Ask for a stop: tasks go, the configuration stays."""
        self._call("PUT", _path(name, "stop"))

    def resume(self, name: str) -> None:
        """Ask a paused or stopped connector to run."""
        self._call("PUT", _path(name, "resume"))

    def delete(self, name: str) -> None:
        """Remove a connector and its configuration; UnknownConnector. The source's slot stays."""
        self._call("DELETE", _path(name))

    def delete_offsets(self, name: str) -> None:
        """Forget how far a STOPPED connector has come: its next start takes an initial snapshot."""
        self._call("DELETE", _path(name, "offsets"))

    def _json(self, method: str, path: str, *, body: object = None) -> Any:
        response = self._call(method, path, body=body)
        try:
            return response.json()
        except requests.JSONDecodeError as error:
            raise ConnectRejected(
                f"what answers at {self.url} is not Kafka Connect: it sent no JSON",
                remedy="check the host and port of the Connect worker",
                place=f"{method} {path}",
                status=response.status_code,
            ) from error

    def _call(
        self, method: str, path: str, *, params: Mapping[str, str] | None = None, body: object = None
    ) -> requests.Response:
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
        params: Mapping[str, str],
        body: object,
        by: float | None = None,
    ) -> requests.Response:
        left = self._timeout if by is None else max(0.1, min(self._timeout, by - time.monotonic()))
        try:
            return self._session.request(
                method, self.url + path, params=params, json=body, timeout=(_CONNECTION_TIMEOUT, left)
            )
        except (requests.ConnectionError, requests.Timeout) as error:
            raise _Again(self._unavailable(method, path)) from error
        except requests.RequestException as error:
            raise self._unavailable(method, path) from error

    def _unavailable(self, method: str, path: str) -> ConnectUnavailable:
        return ConnectUnavailable(
            f"no Kafka Connect worker answers at {self.url}",
            remedy="start the worker, or check the URL (factfold stack status shows the local one)",
            place=f"{method} {path}",
        )

    def _checked(self, response: requests.Response) -> requests.Response:
        if response.ok:
            return response
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
    if response.status_code == 500:
        return "timed out" in message
    return response.status_code in _TRANSIENT_STATUS


def _rejection(response: requests.Response) -> ConnectRejected:
    method, path = response.request.method, response.request.path_url
    kind = UnknownConnector if response.status_code == 404 else ConnectRejected
    message = short_message(_message(response))
    return kind(
        f"Kafka Connect refused: {message}",
        remedy=remedy_for(message),
        place=f"{method} {path}",
        status=response.status_code,
    )
