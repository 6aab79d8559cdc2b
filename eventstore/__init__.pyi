from eventstore.aggregates.aggregate import (
    Aggregate as Aggregate,
    command as command,
)
from eventstore.backends.sql.async_store import AsyncDispatcher as AsyncDispatcher
from eventstore.backends.memory import MemoryEventStore as MemoryEventStore
from eventstore.backends.sql.async_store import AsyncSqlEventStore as AsyncSqlEventStore
from eventstore.backends.sql.keys import SqlKeyStore as SqlKeyStore
from eventstore.backends.sql.store import SqlEventStore as SqlEventStore
from eventstore.backends.sql.store import (
    tenant_store as tenant_store,
    tenants as tenants,
)
from eventstore.delivery.source import Delivery as Delivery
from eventstore.aggregates.dispatcher import (
    Accepted as Accepted,
    Dispatcher as Dispatcher,
    Middleware as Middleware,
    Refusal as Refusal,
    Result as Result,
    Send as Send,
)
from eventstore.erasure import MasterKeys as MasterKeys
from eventstore.event_types import event as event
from eventstore.fields.field_types import Digits as Digits
from eventstore.aggregates.functional import decider as decider
from eventstore.identifiers import (
    ANY as ANY,
    NO_STREAM as NO_STREAM,
    Position as Position,
    STREAM_EXISTS as STREAM_EXISTS,
)
from eventstore.store import (
    Command as Command,
    Metadata as Metadata,
    NewEvent as NewEvent,
    RecordedEvent as RecordedEvent,
)
from eventstore.aggregates.dispatcher import (
    logged as logged,
    required as required,
    traced as traced,
)
from eventstore.personal.sealing import Personal as Personal
from eventstore.restarts import Restarts as Restarts
from eventstore.settings import (
    KafkaSettings as KafkaSettings,
    RegistrySettings as RegistrySettings,
    Settings as Settings,
)
from eventstore.snapshots import Snapshots as Snapshots
from eventstore.store import EventStore as EventStore, StreamAppend as StreamAppend
from eventstore.subscribing import (
    open_async_subscriber as open_async_subscriber,
    open_subscriber as open_subscriber,
    run_async_subscription as run_async_subscription,
    run_subscription as run_subscription,
)
from eventstore.delivery.subscriptions import (
    Subscription as Subscription,
    queue as queue,
    subscription as subscription,
)
from eventstore.fields.upcasting import (
    Cast as Cast,
    Default as Default,
    Drop as Drop,
    Rename as Rename,
    Retype as Retype,
)
from eventstore.delivery.subscriber import Subscriber as Subscriber
from eventstore.delivery.async_subscriber import AsyncSubscriber as AsyncSubscriber
from eventstore.backends.sql.source import StoreSource as StoreSource
from eventstore.processes.worker import ProcessWorker as ProcessWorker
from eventstore.processes.administration import Processes as Processes
from eventstore.processes.running import run_processes as run_processes
from eventstore.processes.running import open_process as open_process
