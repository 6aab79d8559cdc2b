"""What a router does when its query ends, with queries that end as they are told to; real ones: tests/integration."""

from __future__ import annotations

from threading import Event

import pytest

from eventstore import Restarts
from eventstore.errors import BrokerUnreachable, TopicMismatch, TopicMissing
from eventstore.settings import Settings
from projections import branches, field
from projections.branching import router as module
from projections.branching.checkpoint import RouterCheckpoint
from projections.branching.router import Router, RouterOptions
from projections.errors import OffsetsLost, ProjectionError, RealTimeRefused, SparkFailed, SparkStopped, UnknownSchemaId
from tests.errors import raises
from tests.integration.payments_of_every_kind import Payment

PAYMENTS = branches(Payment, {"suspicious": field("amount") > 900}, otherwise="validated")
QUICK = RouterOptions(restarts=Restarts(limit=3, first=0.0), schema_patience=0.0)


def failed(kind, **more):
    error = kind("cause", remedy="do something")
    error.__dict__.update(more)
    return error


class World:
    """A broker, a registry and Spark as one script: what each started query ends with, the last one by ``stop``."""

    def __init__(self, monkeypatch, *ends):
        self.ends, self.stop, self.started, self.stopped = list(ends), Event(), [], 0
        self.batch, self.registry, self.missing = 0, {}, None
        monkeypatch.setattr(module, "_POLL_SECONDS", 0.0)
        monkeypatch.setattr(module, "RoutingQuery", self.query)
        monkeypatch.setattr(module, "read_schemas", lambda settings: dict(self.registry))
        monkeypatch.setattr(module, "end_offsets", lambda settings, topics: {topic: {0: 7} for topic in topics})
        monkeypatch.setattr(Router, "_require_topics", lambda router, **_: self.require_topics())

    def require_topics(self):
        if self.missing:
            raise self.missing

    def query(self, spark, routing, place):
        self.started.append((routing, place))
        self.end = self.ends.pop(0) if self.ends else None
        return Query(self)

    def failure(self):
        if self.end is None:
            self.stop.set()
        return self.end() if callable(self.end) else self.end

    def last_batch(self):
        return self.batch

    def query_stopped(self):
        self.stopped += 1


class Query:
    """The face of a query towards the router."""

    def __init__(self, world):
        self.failure, self.last_batch, self.stop = world.failure, world.last_batch, world.query_stopped


class LivesForABatch:
    """A query that commits a batch and fails later."""

    def __init__(self, world):
        self._world, self._looks = world, 0

    def __call__(self):
        self._looks += 1
        self._world.batch += 1
        return failed(SparkFailed) if self._looks == 3 else None


@pytest.fixture
def world(monkeypatch, tmp_path):
    def make(*ends, options=QUICK):
        made = World(monkeypatch, *ends)
        checkpoint = RouterCheckpoint.of(PAYMENTS, tmp_path)
        made.router = Router(None, Settings(), branches=PAYMENTS, checkpoint=checkpoint, options=options)
        return made

    return make


def test_a_router_stops_its_query_when_it_is_told_to(world):
    found = world()
    found.router.run(stop=found.stop)
    assert (len(found.started), found.stopped, found.router.restarts) == (1, 1, 0)


def test_a_failed_query_is_started_again_and_counted(world):
    found = world(failed(SparkFailed), failed(BrokerUnreachable))
    found.router.run(stop=found.stop)
    assert (len(found.started), found.stopped, found.router.restarts) == (3, 3, 2)


def test_a_router_gives_up_after_too_many_failures_in_a_row_with_the_last_cause(world):
    found = world(*[failed(SparkFailed) for _ in range(9)])
    with raises(ProjectionError, code="gave-up", match="failed 4 times in a row, at last: cause"):
        found.router.run(stop=found.stop)
    assert len(found.started) == 4


def test_a_committed_batch_ends_a_row_of_failures(world):
    found = world()
    found.ends = [end for _ in range(5) for end in (failed(SparkFailed), LivesForABatch(found))]
    found.router.run(stop=found.stop)
    assert found.router.restarts == 10


@pytest.mark.parametrize("kind", [OffsetsLost, SparkStopped])
def test_what_waiting_does_not_help_ends_the_router_at_once(world, kind):
    found = world(failed(kind))
    with pytest.raises(kind):
        found.router.run(stop=found.stop)
    assert (len(found.started), found.stopped) == (1, 1)


def test_a_topic_that_is_gone_ends_the_router_whatever_spark_said(world):
    found = world()
    found.ends = [lambda: setattr(found, "missing", failed(TopicMissing)) or failed(SparkFailed)]
    with pytest.raises(TopicMissing):
        found.router.run(stop=found.stop)


def test_a_schema_that_is_registered_meanwhile_is_learnt_and_nothing_is_a_dead_letter(world):
    found = world()
    found.ends = [lambda: found.registry.update({7: "schema"}) or failed(UnknownSchemaId, schema_id=7)]
    found.router.run(stop=found.stop)
    first, second = (routing for routing, _ in found.started)
    assert (first.registry, second.registry) == ({}, {7: "schema"})
    assert (second.settled, second.given_up) == ({}, frozenset())
    assert (found.router.reloads, found.router.restarts) == (1, 0)


def test_an_id_that_stays_unknown_is_given_up_and_so_is_any_that_lies_in_the_topic_already(world):
    found = world(failed(UnknownSchemaId, schema_id=7), failed(UnknownSchemaId, schema_id=9))
    found.router.run(stop=found.stop)
    told = [(set(routing.given_up), routing.settled) for routing, _ in found.started]
    assert told == [(set(), {}), ({7}, {0: 7}), ({7, 9}, {0: 7})]
    assert (found.router.reloads, found.router.restarts) == (2, 2)


def test_ever_new_unknown_ids_come_to_an_end(world):
    found = world(*[failed(UnknownSchemaId, schema_id=number) for number in range(9)])
    with raises(ProjectionError, code="gave-up", match="failed 4 times in a row, at last: cause"):
        found.router.run(stop=found.stop)
    assert len(found.started) == 4


def test_a_schema_that_comes_after_its_id_was_given_up_starts_the_query_with_it(world, monkeypatch):
    monkeypatch.setattr(module, "_LOOK_SECONDS", -1.0)
    found = world(failed(UnknownSchemaId, schema_id=7))
    found.ends.append(lambda: found.registry.update({7: "schema"}))
    found.router.run(stop=found.stop)
    told = [(set(routing.given_up), routing.registry) for routing, _ in found.started]
    assert told == [(set(), {}), ({7}, {}), (set(), {7: "schema"})]
    assert (found.stopped, found.router.reloads, found.router.restarts) == (3, 2, 1)


def test_a_look_for_schemas_that_the_broker_does_not_answer_is_passed_over(world, monkeypatch):
    found = world(failed(UnknownSchemaId, schema_id=7))
    looks = []

    def read_schemas(settings):
        looks.append(len(found.started))
        if looks.count(2) == 1:
            raise failed(BrokerUnreachable)
        return {}

    found.ends.append(lambda: found.stop.set() if looks.count(2) > 1 else None)
    monkeypatch.setattr(module, "_LOOK_SECONDS", -1.0)
    monkeypatch.setattr(module, "read_schemas", read_schemas)
    found.router.run(stop=found.stop)
    assert len(found.started) == 2


def test_where_real_time_mode_is_refused_micro_batches_go_on(world):
    found = world(failed(RealTimeRefused))
    found.router.run(stop=found.stop)
    assert [place.mode for _, place in found.started] == ["real-time", "micro-batch"]
    assert found.router.mode == "micro-batch"


def test_a_branch_topic_with_fewer_partitions_than_its_source_is_explained(monkeypatch):
    def refuse(settings, topics):
        raise TopicMismatch("topic 'payment.large' has 4 partitions, 6 are required", remedy="…", place="payment.large")

    monkeypatch.setattr(module, "ensure_topics", refuse)
    with raises(TopicMismatch, match="its source 'payment' has 6", remedy="add as many to this topic"):
        module.make_topics(Settings(), PAYMENTS, partitions=6)
