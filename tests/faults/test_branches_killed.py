"""T11, short form: router and subscribers are killed with -9, and every payment is handled once, by one service.

FACTFOLD_KILLS sets how often each is killed (5 in make faults with 20,000 payments). The broker goes away for a while
too. The checker counts what the handlers wrote.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from eventstore import Settings
from eventstore.errors import TopicMissing
from eventstore.kafka.groups import subscription_lag
from projections import branch_counts, branches_status
from tests.faults.command_process import CommandProcess
from tests.faults.transfer_services import (
    HANDLED,
    METADATA,
    SUSPICIOUS_FROM,
    review,
    ship,
    transfer_branches,
)
from tests.integration.payments_topic import PaymentsTopic
from tests.waiting import wait_until

KILLS = int(os.environ.get("FACTFOLD_KILLS", "5"))
PAYMENTS = 4_000 * KILLS
SERVICES = "tests.faults.transfer_services"
# Of a killed service the broker learns by its silence: in 45 s unless this is said.
SOON_GONE = {"session.timeout.ms": "6000"}


class Transfers(PaymentsTopic):
    """Payments of different amounts; every tenth is suspicious."""

    sent = 0

    def send(self, count: int) -> None:
        self.receive([amount(number) for number in range(self.sent, self.sent + count)])
        self.sent += count


def amount(number: int) -> int:
    return number + (SUSPICIOUS_FROM if number % 10 == 0 else 0)


def handled(engine: sa.Engine) -> Counter[tuple[str, int]]:
    with engine.connect() as connection:
        return Counter((row.service, row.amount) for row in connection.execute(sa.select(HANDLED)))


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
    return all(subscription_lag(settings, [one.topic], group=one.group).records == 0 for one in (review, ship))


@pytest.fixture
def transfers(settings):
    return Transfers(settings, name="transfer")


@pytest.mark.faults
@pytest.mark.timeout(200 * (KILLS + 1))
def test_every_payment_is_handled_once_by_one_service_while_router_and_services_are_killed(
    stack, settings, transfers, processes, engine, say, tmp_path
):
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
    transfers.send(PAYMENTS // KILLS // 2)
    stack.stop("kafka")
    time.sleep(10)  # the fault itself, and no wait for anything
    stack.start("kafka")
    transfers.send(PAYMENTS // KILLS // 2)
    wait_until(settle, alive=alive, what="lag 0 after the broker was away", within=240, pause=0.5)
    found = handled(engine)
    amounts = map(amount, range(transfers.sent))
    expected = {("fraud" if one >= SUSPICIOUS_FROM else "shipping", one) for one in amounts}
    assert set(found) == expected
    assert set(found.values()) == {1}
    routed = branch_counts(settings, transfer_branches)
    repeated = routed["suspicious"] + routed["validated"] - transfers.sent
    say(f"replay: FACTFOLD_KILLS={KILLS} pytest tests/faults/test_branches_killed.py; {routed}")
    assert repeated > 0, "no kill made the router repeat a record: nothing was put to the test"
    assert routed["dead-letter"] == 0
