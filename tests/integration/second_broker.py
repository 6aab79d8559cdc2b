"""One more Kafka broker beside the session's stack, for tests of what goes from cluster to cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from eventstore.settings import Settings
from factfold.stack import LocalStack
from factfold.stack.ports import free_ports
from factfold.stack.processes import RecordedProcess
from factfold.stack.state import SERVERS, StackInfo, save, stacks_folder


@contextmanager
def second_broker() -> Iterator[Settings]:
    """Start a broker and give the settings of its clients; its data goes with it, and it with this process."""
    name = f"second-{os.getpid()}"
    folder = stacks_folder() / name
    for part in ("data", "logs", "secrets"):
        (folder / part).mkdir(parents=True, mode=0o755)
    ports = free_ports((*SERVERS, "controller"))
    # With its owner on file, the next stack that starts removes it if this process dies.
    save(StackInfo(name, folder, ports, "", {}, owner=RecordedProcess.of(os.getpid())))
    stack = LocalStack(name, ephemeral=True)
    try:
        stack.start("kafka")
        yield Settings.for_broker(stack.info.bootstrap_servers)
    finally:
        stack.down()
