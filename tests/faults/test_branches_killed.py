"""T11, short form: router and subscribers are killed with -9, and every payment is handled once, by one service.

FACTFOLD_KILLS sets how often each is killed (1 in make test with 4,000 payments, 5 in make faults with 20,000, and
there the broker goes away for a while too). The
checker counts what the handlers wrote. The planted fault, a service without its inbox, shows that the branch topics
hold records twice, and that the checker sees what becomes of them.
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from eventstore import Settings, open_subscriber
from eventstore.errors import TopicMissing
from eventstore.event_types import event_type_of
from eventstore.kafka.admin import ensure_topics
from eventstore.kafka.groups import group_lag
from eventstore.kafka.producer import OutgoingRecord, RecordProducer
from eventstore.topics import SCHEMAS_TOPIC, event_topic, message_key, partition_of, schemas_topic
from projections import branch_counts, branches_status
from tests.faults.command_process import CommandProcess
from tests.faults.transfer_services import (
    HANDLED,
    METADATA,
    SUSPICIOUS_ABOVE,
    Transfer,
    review,
    ship,
    ship_without_inbox,
    transfer_branches,
)
from tests.waiting import wait_until

KILLS = int(os.environ.get("FACTFOLD_KILLS", "1"))
PAYMENTS = 4_000 * KILLS
PARTITIONS = 2
SERVICES = "tests.faults.transfer_services"
# Of a killed service the broker learns by its silence: in 45 s unless this is said.
SOON_GONE = {"session.timeout.ms": "6000"}


class Transfers:
    """Sends numbered transfers as the outbox would; every tenth is suspicious."""

    def __init__(self, settings: Settings) -> None:
        self._producer = RecordProducer(settings)
        self.sent = 0
        ensure_topics(settings, [event_topic("transfer", partitions=PARTITIONS), schemas_topic()])
        schema = event_type_of(Transfer.Received).registered
        self._producer.send([OutgoingRecord(topic=SCHEMAS_TOPIC, key=str(schema.id).encode(), value=schema.to_json())])

    def send(self, count: int) -> None:
        self._producer.send([self._record(number) for number in range(self.sent, self.sent + count)])
        self.sent += count

    def _record(self, number: int) -> OutgoingRecord:
        kind, stream = event_type_of(Transfer.Received), f"transfer-{number}"
        headers = {
            "ce_id": str(uuid.uuid4()), "ce_type": kind.name, "ce_source": "/test", "ce_subject": stream,
            "ce_time": datetime.now(UTC).isoformat(), "ce_streamversion": "0", "ce_position": str(number + 1),
        }  # fmt: skip
        return OutgoingRecord(
            topic="transfer",
            key=message_key(stream, 0).encode(),
            value=kind.encode(Transfer.Received(number=number, amount=amount(number))),
            headers=tuple((name, text.encode()) for name, text in headers.items()),
            partition=partition_of(stream, PARTITIONS),
        )


def amount(number: int) -> int:
    return SUSPICIOUS_ABOVE + 1 if number % 10 == 0 else 10


def handled(engine: sa.Engine) -> Counter[tuple[str, int]]:
    with engine.connect() as connection:
        return Counter((row.service, row.number) for row in connection.execute(sa.select(HANDLED)))


@pytest.fixture
def engine(database):
    engine = sa.create_engine(database())
    METADATA.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def processes(stack, engine, tmp_path):
    """Router, fraud remediation and shipping."""
    settings = {
        "FACTFOLD_KAFKA__BOOTSTRAP_SERVERS": stack.info.bootstrap_servers,
        "FACTFOLD_CHECKPOINTS": str(tmp_path / "checkpoints"),
        "FACTFOLD_INBOX_URL": engine.url.render_as_string(hide_password=False),
        "FACTFOLD_KAFKA__EXTRA_LIBRDKAFKA": json.dumps(SOON_GONE),
    }
    commands = [
        ["branches", "run", f"{SERVICES}:transfer_branches", "--batch-seconds", "5"],
        ["subscriptions", "run", f"{SERVICES}:review"],
        ["subscriptions", "run", f"{SERVICES}:ship"],
    ]
    router = CommandProcess(commands[0], settings, tmp_path / "router.log")
    wait_until(lambda: branch_topics_exist(stack), alive=router.require_alive, what="the branch topics")
    started = [router, *(CommandProcess(c, settings, tmp_path / f"{c[2][-4:]}.log") for c in commands[1:])]
    yield started
    codes = [process.stop() for process in started]
    assert codes == [0, 0, 0]


def branch_topics_exist(stack) -> bool:
    try:
        branch_counts(Settings.for_broker(stack.info.bootstrap_servers), transfer_branches)
    except TopicMissing:
        return False
    return True


def is_settled(settings: Settings, checkpoints: Path) -> bool:
    """Whether the router's checkpoint has reached the end of the transfers, and the services those of their topics."""
    if branches_status(settings, transfer_branches, checkpoints=checkpoints).lag != 0:
        return False
    return all(group_lag(settings, one.topic, group=one.group).records == 0 for one in (review, ship))


@pytest.fixture
def transfers(stack):
    return Transfers(Settings.for_broker(stack.info.bootstrap_servers))


@pytest.mark.faults
@pytest.mark.timeout(200 * (KILLS + 1))
def test_every_payment_is_handled_once_by_one_service_while_router_and_services_are_killed(
    stack, transfers, processes, engine, capsys, tmp_path
):
    settings = Settings.for_broker(stack.info.bootstrap_servers)
    router, *services = processes

    def alive() -> None:
        for process in processes:
            process.require_alive()

    for _ in range(KILLS):
        for victims in ([router], services):
            before = len(handled(engine))
            transfers.send(PAYMENTS // KILLS // 2)
            wait_until(lambda seen=before: len(handled(engine)) > seen, alive=alive, what="an event", pause=0.1)
            for victim in victims:
                victim.kill_and_restart()
    settle = partial(is_settled, settings, tmp_path / "checkpoints")
    # Whatever is handled twice may come last: not the number of payments ends the wait, but that nothing is left.
    wait_until(settle, alive=alive, what="lag 0", within=240, pause=0.5)
    if KILLS > 1:  # the other tests of a session share its broker: make faults alone takes it away
        transfers.send(PAYMENTS // KILLS // 2)
        stack.stop("kafka")
        time.sleep(10)  # the fault itself, and no wait for anything
        stack.start("kafka")
        transfers.send(PAYMENTS // KILLS // 2)
        wait_until(settle, alive=alive, what="lag 0 after the broker was away", within=240, pause=0.5)
    found = handled(engine)
    expected = {("fraud" if amount(n) > SUSPICIOUS_ABOVE else "shipping", n) for n in range(transfers.sent)}
    assert set(found) == expected
    assert set(found.values()) == {1}
    routed = branch_counts(settings, transfer_branches)
    repeated = routed["suspicious"] + routed["validated"] - transfers.sent
    with capsys.disabled():
        sys.stdout.write(f"\nreplay: FACTFOLD_KILLS={KILLS} pytest tests/faults/test_branches_killed.py; {routed}\n")
    assert repeated > 0, "no kill made the router repeat a record: nothing was put to the test"
    assert routed["dead-letter"] == 0
    assert_planted_fault_is_seen(settings, engine, routed["validated"])


def assert_planted_fault_is_seen(settings: Settings, engine: sa.Engine, routed: int) -> None:
    """Without the inbox every record of the branch topic is handled, the repeated ones again."""
    with open_subscriber(ship_without_inbox, settings=settings, engine=engine) as subscriber:
        wait_until(lambda: subscriber.run_once() and subscriber.report.records >= routed, what="the repeated ones")
    mutant = Counter(number for (service, number), times in handled(engine).items() if service == "mutant"
                     for _ in range(times))  # fmt: skip
    assert sum(mutant.values()) == routed
    assert max(mutant.values()) > 1
