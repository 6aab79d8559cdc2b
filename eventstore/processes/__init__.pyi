from eventstore.processes.administration import (
    InstanceStatus as InstanceStatus,
    ProcessCount as ProcessCount,
    Processes as Processes,
)
from eventstore.processes.process import (
    Process as Process,
    Reply as Reply,
    Sending as Sending,
)
from eventstore.processes.reactions import (
    compensated as compensated,
    late as late,
    reacts as reacts,
    replies as replies,
    starts as starts,
    times_out as times_out,
)
from eventstore.processes.running import (
    open_process as open_process,
    process_subscription as process_subscription,
    run_processes as run_processes,
)
from eventstore.processes.worker import (
    ProcessWorker as ProcessWorker,
)
