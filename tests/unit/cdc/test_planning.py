"""What would change is told setting by setting, and no secret with it."""

from __future__ import annotations

import pytest

from cdc import MirrorHeartbeat, PostgresSource, plan
from cdc.connect.status import FAILED, PAUSED, RUNNING, STOPPED, ConnectorInfo, ConnectorStatus, TaskStatus
from cdc.operating.planning import MASK, SettingChange, differences, masked, unread

HEARTS = MirrorHeartbeat(
    name="hearts", source_alias="a", target_alias="b", source_bootstrap_servers="a:9", target_bootstrap_servers="b:9"
)


class Cluster:
    """One connector, as declared, in some state."""

    def __init__(self, state, *tasks):
        self._status = ConnectorStatus("hearts", state, "here", tuple(TaskStatus(0, task, "here") for task in tasks))

    def overview(self):
        info = ConnectorInfo("hearts", "source", {"name": "hearts", **HEARTS.config()}, ())
        return {"hearts": (info, self._status)}


@pytest.mark.parametrize(
    ("state", "tasks", "action"),
    [
        (RUNNING, [RUNNING], "keep"),
        (RUNNING, [FAILED], "restart"),
        (FAILED, [], "restart"),
        (PAUSED, [PAUSED], "resume"),
        (PAUSED, [FAILED], "restart"),
        (STOPPED, [], "resume"),
    ],
)
def test_what_apply_would_mend_is_told_though_nothing_is_changed(state, tasks, action):
    (planned,) = plan(Cluster(state, *tasks), [HEARTS])
    assert (planned.action, planned.is_no_op, planned.changes) == (action, action == "keep", ())
    assert planned.state == f"{state}, {f'task 0 {tasks[0]}' if tasks else 'no task'}"


def source(*tables, **changes):
    words = {"name": "shop", "host": "db", "database": "shop", "user": "u", "password": "${file:/s:p}"}
    return PostgresSource(**words, topic_prefix="shop", tables=tables, **changes).config()


def test_rows_of_a_table_that_is_added_are_told_to_be_left_out():
    (note,) = unread(source("public.a"), source("public.a", "public.b_c", "public.d"))
    assert note.startswith("rows already in public.b_c, public.d are not read")
    assert "factfold cdc snapshot take … --table public.b_c --table public.d" in note


@pytest.mark.parametrize(
    ("running", "declared"),
    [
        (source("public.a", "public.b"), source("public.b")),
        (source("public.a"), source("public.a", extra={"snapshot.mode": "no_data"})),
        (source("public.a"), source("public.a", "public.b", extra={"snapshot.mode": "always"})),
        (source("public.a"), source("public.a", signal_table="public.signals")),
        ({}, source("public.a")),
    ],
)
def test_nothing_is_told_where_no_rows_are_left_out(running, declared):
    assert unread(running, declared) == ()


def test_what_is_new_other_and_gone_is_told_by_key() -> None:
    running = {"a": "1", "b": "2", "c": "3"}
    assert differences(running, {"a": "1", "b": "5", "d": "4"}) == (
        SettingChange("b", "2", "5"),
        SettingChange("c", "3", None),
        SettingChange("d", None, "4"),
    )


@pytest.mark.parametrize(
    "key",
    [
        "database.password", "producer.override.sasl.jaas.config", "schema.registry.basic.auth.credentials.source",
        "mongodb.connection.string", "ssl.keystore.PASSWORD", "oauth.client.secret", "x.api.key", "access_token",
        "producer.override.ssl.keystore.key", "ssl.truststore.certificates", "key.converter.basic.auth.user.info",
    ],
)  # fmt: skip
def test_a_secret_that_differs_is_seen_to_and_not_what_it_is(key: str) -> None:
    (change,) = differences({key: "sentinel-old"}, {key: "sentinel-new"})
    assert change == SettingChange(key, MASK, MASK)


def test_a_reference_tells_no_secret_and_is_shown() -> None:
    reference = "${file:/secrets/shop.properties:password}"
    assert masked("database.password", reference) == reference
    assert masked("database.password", f"{reference} and more") == MASK
    assert masked("topic.prefix", "shop") == "shop"
