"""Fixtures of the tests that kill a relay or clean its topic."""

from __future__ import annotations

import sys

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ResourceType

from eventstore import Settings
from eventstore.kafka.admin import ensure_topics
from eventstore.topics import TopicSpec, event_topic
from tests.crates import crate_store, topic_of
from tests.faults.command_process import CommandProcess
from tests.faults.relayed_topic import PARTITIONS, TINY_SEGMENTS, Topic, alter


@pytest.fixture
def say(capsys):
    """A function that prints what is needed to replay a run, though pytest captures all else."""

    def say(text):
        with capsys.disabled():
            sys.stdout.write(f"\n{text}\n")

    return say


@pytest.fixture
def settings(stack):
    return Settings.for_broker(stack.info.bootstrap_servers)


@pytest.fixture
def crates(database, settings):
    """A store whose topic is of tiny segments."""
    store = crate_store(database(), partitions=PARTITIONS)
    wanted = event_topic(topic_of(store), partitions=PARTITIONS)
    ensure_topics(settings, [TopicSpec(wanted.name, PARTITIONS, {**wanted.config, **TINY_SEGMENTS})])
    yield store
    store.close()


@pytest.fixture
def topic(settings, crates):
    return Topic(settings, topic_of(crates))


@pytest.fixture
def start_relay(crates, settings, tmp_path):
    """A function that starts `factfold relay run`; what still runs at the end stops in peace."""
    started = []

    def start(*options, name="relay"):
        environment = {
            "FACTFOLD_STORE_URL": crates.engine.url.render_as_string(hide_password=False),
            "FACTFOLD_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
        }
        command = ["relay", "run", "--json", *options]
        process = CommandProcess(command, environment, tmp_path / f"{name}.log")
        started.append(process)
        return process

    yield start
    for process in started:
        process.stop()


@pytest.fixture
def eager_cleaner(settings):
    """The broker looks every 0.2 s for something to clean, and not every 15."""
    admin, backoff = AdminClient(settings.kafka.librdkafka()), "log.cleaner.backoff.ms"
    alter(admin, ResourceType.BROKER, "1", {backoff: "200"})
    yield
    alter(admin, ResourceType.BROKER, "1", {backoff: None}, operation=AlterConfigOpType.DELETE)
