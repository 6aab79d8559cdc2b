"""What `apply` would do: declared connectors held against those that run, setting by setting, secrets masked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from cdc.connectors.base import Connector
from cdc.connectors.catalogue import holds_secret
from cdc.secrets import is_reference
from cdc.status import ConnectorInfo, ConnectorStatus

if TYPE_CHECKING:
    from cdc.connect import ConnectClient

MASK: Final = "**********"


@dataclass(frozen=True, slots=True)
class SettingChange:
    """One setting as it runs and as it is declared; None where it is not there. Secrets are masked."""

    key: str
    running: str | None
    declared: str | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What `apply` would do with one connector.

    ``undeclared`` is one that runs and was not declared: `apply` leaves it alone. ``state`` is what runs now, None
    where nothing does.
    """

    name: str
    action: Literal["create", "change", "keep", "undeclared"]
    changes: tuple[SettingChange, ...] = ()
    state: str | None = None


def plan(client: ConnectClient, connectors: Iterable[Connector]) -> tuple[Plan, ...]:
    """Compare declared connectors with the cluster's, in the order given, then those that nobody declared, by name.

    Nothing is changed. ConnectUnavailable, ConnectRejected.
    """
    running = client.overview()
    declared = {connector.name: {"name": connector.name, **connector.config()} for connector in connectors}
    plans = [_plan(name, config, running) for name, config in declared.items()]
    others = [Plan(name, "undeclared", state=running[name][1].state) for name in running if name not in declared]
    return (*plans, *others)


def _plan(name: str, config: Mapping[str, str], running: Mapping[str, tuple[ConnectorInfo, ConnectorStatus]]) -> Plan:
    if name not in running:
        return Plan(name, "create", differences({}, config))
    info, status = running[name]
    changes = differences(info.config, config)
    return Plan(name, "change" if changes else "keep", changes, status.state)


def differences(running: Mapping[str, str], declared: Mapping[str, str]) -> tuple[SettingChange, ...]:
    """Return the settings that differ, by key; a secret that differs is seen to, and not what it is."""
    keys = sorted({*running, *declared})
    return tuple(
        SettingChange(key, masked(key, running.get(key)), masked(key, declared.get(key)))
        for key in keys
        if running.get(key) != declared.get(key)
    )


def masked(key: str, value: str | None) -> str | None:
    """Return a value as it may be shown: a secret only where it is a reference or empty."""
    if not value or is_reference(value) or not holds_secret(key, value):
        return value
    return MASK
