from cdc.changes.change_event import (
    ChangeDecoder as ChangeDecoder,
    ChangeEvent as ChangeEvent,
    Op as Op,
    decode_message as decode_message,
)
from cdc.comparing.comparison import compare_tables as compare_tables
from cdc.comparing.embedded import compare_embedded as compare_embedded
from cdc.connect.client import ConnectClient as ConnectClient
from cdc.operating.supervisor import connector_health as connector_health
from cdc.operating.supervisor import ConnectorMetrics as ConnectorMetrics
from cdc.connectors.declared import Connector as Connector
from cdc.connectors.binlog import (
    MariaDbSource as MariaDbSource,
    MySqlSource as MySqlSource,
)
from cdc.connectors.debezium import CustomSource as CustomSource
from cdc.connectors.encodings import (
    ApicurioAvro as ApicurioAvro,
    JsonWithSchemas as JsonWithSchemas,
    PlainJson as PlainJson,
)
from cdc.connectors.mirror import (
    MirrorCheckpoint as MirrorCheckpoint,
    MirrorHeartbeat as MirrorHeartbeat,
    MirrorSource as MirrorSource,
)
from cdc.connectors.postgres import OutboxSource as OutboxSource
from cdc.connectors.postgres import PostgresSource as PostgresSource
from cdc.operating.control import (
    apply_connector as apply_connector,
    delete_connector as delete_connector,
    set_connector_state as set_connector_state,
    reset_offsets as reset_offsets,
    restart_connector as restart_connector,
)
from cdc.connectors.declarations import load_connectors as load_connectors
from cdc.operating.diagnosis import diagnose_connector as diagnose_connector
from cdc.findings import Severity as Severity
from cdc.source.grants import (
    drop_slot as drop_slot,
    grant_statements as grant_statements,
    prepare_source as prepare_source,
)
from cdc.operating.planning import plan_connectors as plan_connectors
from cdc.preparing.service import Service as Service, prepare_service as prepare_service
from cdc.operating.rotation import rotate_password as rotate_password
from cdc.connectors.secrets import write_secrets as write_secrets
from cdc.source.signal_table import (
    clear_signals as clear_signals,
    prepare_signals as prepare_signals,
)
from cdc.source.signals import Signals as Signals
from cdc.operating.supervisor import Supervisor as Supervisor
from cdc.operating.planning import prepare_topics as prepare_topics
from cdc.embedded import capture_table as capture_table
from eventstore.backends.sql.values import UtcDateTime as UtcDateTime
