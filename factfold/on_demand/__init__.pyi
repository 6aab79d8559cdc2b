from cdc.connectors.postgres_connector import PostgresConnector as PostgresConnector
from cdc.source.grants import grant_notes as grant_notes
from cdc.source.catalogue import not_of as not_of
from eventstore.asyncapi import (
    Routed as Routed,
    Service as Service,
    asyncapi as asyncapi,
)
from eventstore.backends.sql.counting import (
    by_category as by_category,
    snapshots_of as snapshots_of,
    stored_forms as stored_forms,
)
from eventstore.backends.sql.engines import (
    engine_for as engine_for,
    opened_engine as opened_engine,
    refuse_writes as refuse_writes,
    url_of as url_of,
)
from eventstore.backends.sql.process_rows import SqlInboxes as SqlInboxes
from eventstore.backends.sql.replaying import (
    Replay as Replay,
    parse_position as parse_position,
)
from eventstore.delivery.source import (
    MASK as MASK,
    masked_message as masked_message,
    masked_traceback as masked_traceback,
)
from eventstore.inbox import Inbox as Inbox
from eventstore.inspection.deciding import decide_again as decide_again
from eventstore.inspection.refolding import refolded as refolded
from eventstore.inspection.selection import Selection as Selection
from eventstore.inspection.store_log import StoreLog as StoreLog
from eventstore.inspection.tracing import trace as trace
from eventstore.kafka import ConfluentRegistry as ConfluentRegistry
from eventstore.kafka.admin import (
    OffsetReader as OffsetReader,
    compare_topics as compare_topics,
)
from eventstore.kafka.confluent_registry import configured_registry as configured_registry
from eventstore.kafka.entries import TopicLog as TopicLog
from eventstore.kafka.groups import (
    group_standing as group_standing,
    group_statuses as group_statuses,
    read_topics as read_topics,
    require_group as require_group,
    reset_group as reset_group,
    reset_plan as reset_plan,
    subscription_lag as subscription_lag,
    subscription_lags as subscription_lags,
)
from eventstore.metrics import (
    ProcessMetrics as ProcessMetrics,
    RelayMetrics as RelayMetrics,
    SubscriptionMetrics as SubscriptionMetrics,
    serve_metrics as serve_metrics,
)
from eventstore.metrics.families import RUNNER as RUNNER
from eventstore.metrics.families import refreshing as refreshing
from eventstore.personal.sealing import Sealed as Sealed
from eventstore.processes import Process as Process
from eventstore.processes.administration import Processes as Processes
from eventstore.processes.reaching import unreached as unreached
from eventstore.processes.running import run_processes as run_processes
from eventstore.relay import (
    Relay as Relay,
    relay_status as relay_status,
)
from eventstore.scheduling import Schedule as Schedule
from eventstore.spans import Spans as Spans
from eventstore.kafka.tails import topic_owners as topic_owners
from eventstore.topics import (
    DEFAULT_SOURCE as DEFAULT_SOURCE,
    event_topic as event_topic,
)
from projections.branching.router import router_outwaiting as router_outwaiting
from projections.declaring.group import lakes_of as lakes_of
from projections.declaring.group import ERASURES as ERASURES
from projections.lifecycle.missing import why_missing as why_missing
from projections.lifecycle.metrics import applied_commits as applied_commits
from projections.lifecycle.metrics import (
    waited_seconds as waited_seconds,
    waiting_offsets as waiting_offsets,
)
from projections.spark.session import end_session as end_session
from projections.spark.session import open_session as open_session
from projections.spark.session import make_class_archive as make_class_archive
from projections.spark.reading.kafka_source import KafkaLog as KafkaLog
from projections.spark.session import SharedJvm as SharedJvm
from projections.spark.views.view_functions import (
    personal_columns as personal_columns,
    view_columns as view_columns,
)
from projections.stores.asked_rows import (
    asked_condition as asked_condition,
    query_rows as query_rows,
)
from projections.stores.explaining import (
    drawn as drawn,
    explain as explain,
)
from projections.stores.behind_rows import (
    COUNTED as COUNTED,
    personal_of as personal_of,
    rows_behind as rows_behind,
    view_rows as view_rows,
)
from projections.stores.compared import captured_models as captured_models
from projections.stores.finals import (
    require_finals as require_finals,
    results_of as results_of,
)
from projections.stores.outlook import outlook as outlook
from projections.stores.generations import (
    drop as drop,
    require_known as require_known,
)
from projections.stores.aside import set_aside_places as set_aside_places
from projections.stores.opening import (
    open_table_store as open_table_store,
    sqlite_path as sqlite_path,
)
from projections.stores.runs import require_unchanged as require_unchanged
from projections.declaring.branches import Branches as Branches
