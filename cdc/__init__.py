"""Row changes become changelog topics: connectors declared, applied and watched; change events decoded.

from cdc import ConnectClient, PostgresSource, apply, prepare_source, write_secrets
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eventstore.extras import import_with_extras

if TYPE_CHECKING:
    from cdc.change_event import ChangeDecoder, ChangeEvent, LogMessage, Op, decode_message
    from cdc.comparing.comparison import compare
    from cdc.comparing.embedded import compare_embedded
    from cdc.comparing.report import ComparisonProgress, TableComparison
    from cdc.connect import ConnectClient
    from cdc.connector_health import ConnectorHealth, health, healths
    from cdc.connector_metrics import ConnectorMetrics
    from cdc.connectors.base import Connector
    from cdc.connectors.binlog import MariaDbSource, MySqlSource
    from cdc.connectors.encodings import ApicurioAvro, Encoding, JsonWithSchemas, PlainJson
    from cdc.connectors.mirror import MirrorCheckpoint, MirrorHeartbeat, MirrorSource
    from cdc.connectors.mongodb import MongoSource
    from cdc.connectors.outbox import OutboxSource
    from cdc.connectors.postgres import PostgresSource
    from cdc.connectors.sqlserver import SqlServerSource
    from cdc.control import Applied, apply, delete, move, reset_offsets, restart, statuses
    from cdc.declarations import load
    from cdc.diagnosis import diagnose
    from cdc.findings import Finding, Severity
    from cdc.grants import check_source, drop_slot, grant_statements, mark_source, prepare_source
    from cdc.notifications import Notification, NotificationReader, SnapshotKind, Stage
    from cdc.planning import Plan, SettingChange, plan
    from cdc.positions import SourcePosition
    from cdc.rotation import rotate_password
    from cdc.secrets import write_secrets
    from cdc.signal_table import clear_signals, prepare_signals
    from cdc.signals import Signalled, Signals
    from cdc.snapshots import TableRead
    from cdc.status import ConnectorStatus
    from cdc.supervisor import RestartPolicy, Supervisor
    from cdc.topics import prepare_topics
    from cdc.transaction_log import SourceTransactions
    from cdc.transactions import TransactionMarker, decode_marker
    from cdc.triggers import capture
    from cdc.watch import Until, check
    from eventstore.backends.sql.utc_times import UtcDateTime

__all__ = [
    "ApicurioAvro",
    "Applied",
    "ChangeDecoder",
    "ChangeEvent",
    "ComparisonProgress",
    "ConnectClient",
    "Connector",
    "ConnectorHealth",
    "ConnectorMetrics",
    "ConnectorStatus",
    "Encoding",
    "Finding",
    "JsonWithSchemas",
    "LogMessage",
    "MariaDbSource",
    "MirrorCheckpoint",
    "MirrorHeartbeat",
    "MirrorSource",
    "MongoSource",
    "MySqlSource",
    "Notification",
    "NotificationReader",
    "Op",
    "OutboxSource",
    "PlainJson",
    "Plan",
    "PostgresSource",
    "RestartPolicy",
    "SettingChange",
    "Severity",
    "Signalled",
    "Signals",
    "SnapshotKind",
    "SourcePosition",
    "SourceTransactions",
    "SqlServerSource",
    "Stage",
    "Supervisor",
    "TableComparison",
    "TableRead",
    "TransactionMarker",
    "Until",
    "UtcDateTime",
    "apply",
    "capture",
    "check",
    "check_source",
    "clear_signals",
    "compare",
    "compare_embedded",
    "decode_marker",
    "decode_message",
    "delete",
    "diagnose",
    "drop_slot",
    "grant_statements",
    "health",
    "healths",
    "load",
    "mark_source",
    "move",
    "plan",
    "prepare_signals",
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
    "cdc.change_event": ("ChangeDecoder", "ChangeEvent", "LogMessage", "Op", "decode_message"),
    "cdc.comparing.comparison": ("compare",),
    "cdc.comparing.embedded": ("compare_embedded",),
    "cdc.comparing.report": ("ComparisonProgress", "TableComparison"),
    "cdc.connect": ("ConnectClient",),
    "cdc.connector_health": ("ConnectorHealth", "health", "healths"),
    "cdc.connector_metrics": ("ConnectorMetrics",),
    "cdc.connectors.base": ("Connector",),
    "cdc.connectors.binlog": ("MariaDbSource", "MySqlSource"),
    "cdc.connectors.encodings": ("ApicurioAvro", "Encoding", "JsonWithSchemas", "PlainJson"),
    "cdc.connectors.mirror": ("MirrorCheckpoint", "MirrorHeartbeat", "MirrorSource"),
    "cdc.connectors.mongodb": ("MongoSource",),
    "cdc.connectors.outbox": ("OutboxSource",),
    "cdc.connectors.postgres": ("PostgresSource",),
    "cdc.connectors.sqlserver": ("SqlServerSource",),
    "cdc.control": ("Applied", "apply", "delete", "move", "reset_offsets", "restart", "statuses"),
    "cdc.declarations": ("load",),
    "cdc.diagnosis": ("diagnose",),
    "cdc.findings": ("Finding", "Severity"),
    "cdc.grants": ("check_source", "drop_slot", "grant_statements", "mark_source", "prepare_source"),
    "cdc.notifications": ("Notification", "NotificationReader", "SnapshotKind", "Stage"),
    "cdc.planning": ("Plan", "SettingChange", "plan"),
    "cdc.positions": ("SourcePosition",),
    "cdc.rotation": ("rotate_password",),
    "cdc.secrets": ("write_secrets",),
    "cdc.signal_table": ("clear_signals", "prepare_signals"),
    "cdc.signals": ("Signalled", "Signals"),
    "cdc.snapshots": ("TableRead",),
    "cdc.status": ("ConnectorStatus",),
    "cdc.supervisor": ("RestartPolicy", "Supervisor"),
    "cdc.topics": ("prepare_topics",),
    "cdc.transaction_log": ("SourceTransactions",),
    "cdc.transactions": ("TransactionMarker", "decode_marker"),
    "cdc.triggers": ("capture",),
    "eventstore.backends.sql.utc_times": ("UtcDateTime",),
    "cdc.watch": ("Until", "check"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(import_with_extras(_HOME_OF[name]), name)
    raise AttributeError(f"module 'cdc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
