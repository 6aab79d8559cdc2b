"""The broker is killed with -9, or away from the start: runners, routers and subscriptions go on by themselves."""

from __future__ import annotations

import dataclasses
import time
from decimal import Decimal

import pytest
import structlog.testing

from eventstore import Restarts, run_subscription
from eventstore.errors import KafkaError
from eventstore.kafka.consumer import read_range
from projections.declaring.branches import Branches
from sample_app.background import Background
from tests.integration import payment_branches
from tests.integration.delivering import noting
from tests.integration.following import followed
from tests.integration.log_writer import LogWriter
from tests.integration.payments_of_every_kind import Payment
from tests.integration.payments_topic import PaymentsTopic
from tests.integration.router_process import RouterProcess
from tests.integration.ticket_history import assert_views_as_expected, rebuilt_tickets, view_rows
from tests.waiting import wait_until

KILLS = 5
pytestmark = pytest.mark.faults  # each failure is waited for


def test_an_idle_runner_outwaits_a_broker_that_is_killed_again_and_again(environment, stack):
    env = environment()
    writer, group, history = rebuilt_tickets(env)
    with followed(env, group, policy=Restarts(limit=1_000, first=0.1, longest=0.5)) as (follower, goes_on):
        for _ in range(KILLS):
            seen = follower.restarts
            stack.kill("kafka")
            wait_until(lambda seen=seen: follower.restarts > seen, alive=goes_on, what="a failure that passes")
            stack.start("kafka")
            writer.send([record for _ in range(20) for record in history.step()])
            wait_until(
                lambda: view_rows(env, "ticket_left") == history.expected_left(), alive=goes_on, what="the views"
            )
    assert_views_as_expected(env, history)


class Routed:
    """Payments of a topic of their own, and the router over it."""

    def __init__(self, settings, folder):
        self.settings, self.folder, self.sent = settings, folder, set()
        self.writer = LogWriter(settings, Payment)
        self.branches: Branches = dataclasses.replace(payment_branches.payments, topic=self.writer.events_topic)

    def router(self, *options):
        servers = self.settings.kafka.bootstrap_servers
        return RouterProcess(servers, self.branches.topic, self.folder, "--batch-seconds", "5", *options)

    def send(self, count):
        fields = {name: None for name in Payment.Received.__annotations__}
        numbers = range(len(self.sent), len(self.sent) + count)
        records = [
            self.writer.event(f"p{n}", Payment.Received(**fields | {"amount": Decimal(n % 2 * 1_000)})) for n in numbers
        ]
        self.writer.send(records)
        self.sent |= {record.key for record in records}

    def arrived(self):
        """Whether every payment is in a branch topic, and in one alone."""
        try:
            found = [{r.key for r in read_range(self.settings, topic)} for topic in self.branches.topics.values()]
        except KafkaError:  # the router makes its topics, and a leader takes a moment to be known
            return False
        return set().union(*found) == self.sent and sum(map(len, found)) == len(self.sent)


@pytest.mark.parametrize("mode", ["real-time", "micro-batch"])
def test_a_router_outwaits_a_broker_that_is_killed_again_and_again(settings, stack, tmp_path, mode):
    routed = Routed(settings, tmp_path)
    routed.send(20)
    router = routed.router("--mode", mode)
    try:
        router.wait_until(routed.arrived, what="routing")
        for _ in range(KILLS):
            before = router.said.count("the query waits")
            stack.kill("kafka")
            router.wait_until(lambda seen=before: router.said.count("the query waits") > seen, what="a look in vain")
            stack.start("kafka")
            routed.send(20)
            router.wait_until(routed.arrived, what="routing behind a kill")
        before = router.said.count("the query waits")
        stack.kill("kafka")
        router.wait_until(lambda: router.said.count("the query waits") > before, what="a look in vain")
        began = time.monotonic()
        assert router.stop() == 0
        assert time.monotonic() - began < 5  # 2 s on a quiet machine; 20 s before it looked in glances
    finally:
        router.close()
        stack.start("kafka")


def test_a_subscription_that_is_started_without_a_broker_waits_for_it_and_outwaits_a_kill(settings, stack):
    payments = PaymentsTopic(settings)
    payments.receive([1])
    seen = []
    declared = noting(payments.name, group="g", into=seen)
    policy = Restarts(limit=1_000, first=0.1, longest=0.5)
    deliver = Background(
        lambda stop: run_subscription(declared, stop=stop, settings=settings, restarts=policy), name="subscription"
    )
    stack.kill("kafka")
    try:
        with structlog.testing.capture_logs() as lines, deliver.running():
            alive = deliver.require_health
            wait_until(lambda: any(line["event"] == "subscription failed" for line in lines), alive=alive, what="it")
            stack.start("kafka")
            wait_until(lambda: set(seen) == {1}, alive=alive, what="what was sent before")
            stack.kill("kafka")
            stack.start("kafka")
            payments.receive([2])
            wait_until(lambda: set(seen) == {1, 2}, alive=alive, what="what was sent behind the kill")
    finally:
        stack.start("kafka")
