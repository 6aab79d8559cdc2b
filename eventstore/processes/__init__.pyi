from eventstore.processes.process import Process as Process, Reply as Reply
from eventstore.processes.process import (
    compensated as compensated,
    late as late,
    reacts as reacts,
    replies as replies,
    starts as starts,
    times_out as times_out,
)
