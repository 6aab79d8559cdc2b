"""Row changes become changelog topics: connectors declared, applied and watched; change events decoded.

from cdc import ConnectClient, PostgresSource, apply, prepare_source, write_secrets
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cdc.change_event import ChangeDecoder, ChangeEvent, Op, SourcePosition
    from cdc.connect import ConnectClient
    from cdc.connector_health import ConnectorHealth, health, healths
    from cdc.connectors.base import Connector
    from cdc.connectors.outbox import OutboxSource
    from cdc.connectors.postgres import PostgresSource
    from cdc.control import Applied, apply, delete, move, reset_offsets, restart, statuses
    from cdc.diagnosis import diagnose
    from cdc.findings import Finding, Severity
    from cdc.grants import check_source, drop_slot, grant_statements, mark_source, prepare_source
    from cdc.planning import Plan, SettingChange, plan
    from cdc.rotation import rotate_password
    from cdc.secrets import write_secrets
    from cdc.status import ConnectorStatus
    from cdc.supervisor import RestartPolicy, Supervisor
    from cdc.topics import prepare_topics
    from cdc.triggers import capture
    from cdc.watch import Until, check

__all__ = [
    "Applied",
    "ChangeDecoder",
    "ChangeEvent",
    "ConnectClient",
    "Connector",
    "ConnectorHealth",
    "ConnectorStatus",
    "Finding",
    "Op",
    "OutboxSource",
    "Plan",
    "PostgresSource",
    "RestartPolicy",
    "SettingChange",
    "Severity",
    "SourcePosition",
    "Supervisor",
    "Until",
    "apply",
    "capture",
    "check",
    "check_source",
    "delete",
    "diagnose",
    "drop_slot",
    "grant_statements",
    "health",
    "healths",
    "mark_source",
    "move",
    "plan",
    "prepare_source",
    "prepare_topics",
    "reset_offsets",
    "restart",
    "rotate_password",
    "statuses",
    "write_secrets",
]

# Importing `cdc` loads no client library: each name is fetched from its module when first asked for.
_HOMES = {
    "cdc.change_event": ("ChangeDecoder", "ChangeEvent", "Op", "SourcePosition"),
    "cdc.connect": ("ConnectClient",),
    "cdc.connector_health": ("ConnectorHealth", "health", "healths"),
    "cdc.connectors.base": ("Connector",),
    "cdc.connectors.outbox": ("OutboxSource",),
    "cdc.connectors.postgres": ("PostgresSource",),
    "cdc.control": ("Applied", "apply", "delete", "move", "reset_offsets", "restart", "statuses"),
    "cdc.diagnosis": ("diagnose",),
    "cdc.findings": ("Finding", "Severity"),
    "cdc.grants": ("check_source", "drop_slot", "grant_statements", "mark_source", "prepare_source"),
    "cdc.planning": ("Plan", "SettingChange", "plan"),
    "cdc.rotation": ("rotate_password",),
    "cdc.secrets": ("write_secrets",),
    "cdc.status": ("ConnectorStatus",),
    "cdc.supervisor": ("RestartPolicy", "Supervisor"),
    "cdc.topics": ("prepare_topics",),
    "cdc.triggers": ("capture",),
    "cdc.watch": ("Until", "check"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(import_module(_HOME_OF[name]), name)
    raise AttributeError(f"module 'cdc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
