"""MirrorMaker's connectors: what they say, and what they refuse to say."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.errors import InvalidConnector, LiteralSecret
from tests.unit.cdc.declared import MIRRORS, REFERENCE, checkpoint, heartbeat, mirror


@pytest.mark.parametrize("declare", MIRRORS)
def test_records_are_bytes_whatever_the_worker_s_converters_are(declare: Any) -> None:
    config = declare().config()

    for part in ("key", "value", "header"):
        assert config[f"{part}.converter"] == "org.apache.kafka.connect.converters.ByteArrayConverter"


def test_a_mirror_copies_each_committed_record_once() -> None:
    config = mirror().config()

    assert config["exactly.once.support"] == "required"
    assert config["source.consumer.isolation.level"] == "read_committed"
    assert mirror(exactly_once=False).config()["exactly.once.support"] == "requested"


def test_a_checkpoint_moves_groups_which_mirrormaker_does_not_by_itself() -> None:
    config = checkpoint(interval_seconds=2).config()

    assert config["sync.group.offsets.enabled"] == "true"
    assert config["sync.group.offsets.interval.seconds"] == config["emit.checkpoints.interval.seconds"] == "2"


@pytest.mark.parametrize("declare", MIRRORS)
def test_replicas_are_the_brokers_own_choice_unless_told(declare: Any) -> None:
    def factors(config: dict[str, str]) -> set[str]:
        return {value for key, value in config.items() if key.endswith("replication.factor")}

    assert factors(declare().config()) == {"-1"}
    assert factors(declare(replicas=3).config()) == {"3"}


@pytest.mark.parametrize("declare", MIRRORS)
def test_topics_keep_their_names_where_asked(declare: Any) -> None:
    assert declare().config()["replication.policy.class"].endswith(".DefaultReplicationPolicy")
    assert declare(rename=False).config()["replication.policy.class"].endswith(".IdentityReplicationPolicy")


def test_secrets_of_a_cluster_are_references() -> None:
    key = "source.cluster.sasl.jaas.config"

    assert mirror(extra={key: REFERENCE}).config()[key] == REFERENCE
    with pytest.raises(LiteralSecret):
        mirror(extra={key: "sentinel"})


@pytest.mark.parametrize(
    ("declare", "changes"),
    [
        (mirror, {"topics": ()}),
        (mirror, {"topics": ("a{1,2}",)}),
        (checkpoint, {"groups": ()}),
        (checkpoint, {"groups": (" ",)}),
        (heartbeat, {"target_alias": "here"}),
        (heartbeat, {"source_alias": "a.b"}),
        (heartbeat, {"tasks": 0}),
        (heartbeat, {"extra": {"topics": "x"}}),
        (mirror, {"extra": {"replication.factor": 2}}),
    ],
)
def test_declarations_that_cannot_work_are_refused(declare: Any, changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidConnector):
        declare(**changes)


def test_there_is_no_database_to_look_into() -> None:
    with pytest.raises(InvalidConnector, match="from Kafka to Kafka"):
        mirror().check_source(None)
