"""Process managers: what a service does about events over days; waits, gives up, compensates."""

from eventstore.processes.process import Process, Reply, Sending
from eventstore.processes.reactions import compensated, late, reacts, replies, starts, times_out

__all__ = ["Process", "Reply", "Sending", "compensated", "late", "reacts", "replies", "starts", "times_out"]
