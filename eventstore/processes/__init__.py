"""Process managers: decisions of a service about events over days, with timers, replies and compensation.

The room imports aggregates, backends and delivery. No store, topic or subscription knows it.
"""

from eventstore.processes.process import Process, Reply, Sending
from eventstore.processes.reactions import compensated, late, reacts, replies, starts, times_out

__all__ = ["Process", "Reply", "Sending", "compensated", "late", "reacts", "replies", "starts", "times_out"]
