from cdc.changes.change_event import (
    ChangeDecoder as ChangeDecoder,
    ChangeEvent as ChangeEvent,
    LogMessage as LogMessage,
    Op as Op,
    decode_message as decode_message,
)
from cdc.comparing.comparison import compare as compare
from cdc.comparing.embedded import compare_embedded as compare_embedded
from cdc.comparing.report import (
    ComparisonProgress as ComparisonProgress,
    TableComparison as TableComparison,
)
from cdc.connect.client import ConnectClient as ConnectClient
from cdc.operating.connector_health import (
    ConnectorHealth as ConnectorHealth,
    health as health,
    healths as healths,
)
from cdc.operating.connector_metrics import ConnectorMetrics as ConnectorMetrics
from cdc.connectors.base import Connector as Connector
from cdc.connectors.binlog import (
    MariaDbSource as MariaDbSource,
    MySqlSource as MySqlSource,
)
from cdc.connectors.changelog import CustomSource as CustomSource
from cdc.connectors.encodings import (
    ApicurioAvro as ApicurioAvro,
    Encoding as Encoding,
    JsonWithSchemas as JsonWithSchemas,
    PlainJson as PlainJson,
)
from cdc.connectors.mirror import (
    MirrorCheckpoint as MirrorCheckpoint,
    MirrorHeartbeat as MirrorHeartbeat,
    MirrorSource as MirrorSource,
)
from cdc.connectors.outbox import OutboxSource as OutboxSource
from cdc.connectors.postgres import PostgresSource as PostgresSource
from cdc.operating.control import (
    Applied as Applied,
    apply as apply,
    delete as delete,
    move as move,
    reset_offsets as reset_offsets,
    restart as restart,
    statuses as statuses,
)
from cdc.connectors.declarations import load as load
from cdc.operating.diagnosis import diagnose as diagnose
from cdc.findings import (
    Finding as Finding,
    Severity as Severity,
)
from cdc.source.grants import (
    check_source as check_source,
    drop_slot as drop_slot,
    grant_statements as grant_statements,
    mark_source as mark_source,
    prepare_source as prepare_source,
)
from cdc.source.notifications import (
    Notification as Notification,
    NotificationReader as NotificationReader,
    SnapshotKind as SnapshotKind,
    Stage as Stage,
    TableRead as TableRead,
)
from cdc.operating.planning import (
    Plan as Plan,
    SettingChange as SettingChange,
    plan as plan,
)
from cdc.changes.positions import SourcePosition as SourcePosition
from cdc.preparing.service import Service as Service, prepare_service as prepare_service
from cdc.preparing.steps import PreparedStep as PreparedStep
from cdc.operating.rotation import rotate_password as rotate_password
from cdc.connectors.secrets import write_secrets as write_secrets
from cdc.source.signal_table import (
    clear_signals as clear_signals,
    prepare_signals as prepare_signals,
)
from cdc.source.signals import (
    Signalled as Signalled,
    Signals as Signals,
)
from cdc.connect.status import ConnectorStatus as ConnectorStatus
from cdc.operating.supervisor import Supervisor as Supervisor
from cdc.operating.topics import prepare_topics as prepare_topics
from cdc.changes.transaction_log import SourceTransactions as SourceTransactions
from cdc.changes.transactions import (
    TransactionMarker as TransactionMarker,
    decode_marker as decode_marker,
)
from cdc.embedded.triggers import capture as capture
from cdc.operating.watch import (
    Until as Until,
    check as check,
)
from eventstore.backends.sql.utc_times import UtcDateTime as UtcDateTime
