from eventstore.backends.sql.replaying import (
    Replay as Replay,
)
from eventstore.inspection.deciding import (
    decide_again as decide_again,
)
from eventstore.inspection.selection import (
    Selection as Selection,
)
from eventstore.inspection.store_log import (
    StoreLog as StoreLog,
)
from eventstore.inspection.store_log import (
    stream_state as stream_state,
)
from eventstore.inspection.tracing import (
    trace as trace,
)
from eventstore.kafka.entries import (
    TopicLog as TopicLog,
)
