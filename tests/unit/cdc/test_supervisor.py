"""A supervisor over a cluster of our own making, on a clock of our own."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from cdc import MirrorCheckpoint, Severity, Supervisor
from cdc.connect.failures import MAX_LINE, remedy_for, short_message, short_trace
from cdc.connect.status import FAILED, PAUSED, RUNNING, STOPPED, ConnectorStatus, TaskStatus
from cdc.errors import ConnectUnavailable, RestartsExhausted, UnknownConnector
from cdc.findings import size
from cdc.operating.control import TASKLESS_SECONDS
from cdc.operating.supervisor import RESTARTS
from cdc.source.catalogue import ReplicationSlot, ServerFacts
from cdc.source.source_health import of_room, of_server, of_slot
from eventstore import Restarts
from tests.rows import each_row
from tests.unit.cdc.declared import postgres

TRACE = "java.lang.Exception: Tolerance exceeded\nCaused by: java.lang.Exception: Publication autocreation is disabled"
POLICY = Restarts(limit=4, longest=4.0)
HEALTHY_AFTER = 30.0


@dataclass
class Cluster:
    """Connectors by name, each FAILED until it was restarted so many times; counts from 0 again once it runs."""

    cures: dict[str, int]
    state: dict[str, str] = field(default_factory=dict)
    now: float = 0.0
    away: bool = False
    restarts: list[tuple[str, float]] = field(default_factory=list)
    taskless: set[str] = field(default_factory=set)
    classes: dict[str, str] = field(default_factory=dict)

    def overview(self):
        if self.away:
            raise ConnectUnavailable("nobody answers", remedy="start the worker")
        return {name: ({"connector.class": self.classes.get(name, "")}, self._status(name)) for name in self.cures}

    def config(self, name):
        if name not in self.cures:
            raise UnknownConnector(name, remedy="", status=404)

    def restart(self, name, *, only_failed):
        assert only_failed is (name not in self.taskless)
        self.restarts.append((name, self.now))
        self.taskless.discard(name)
        self.cures[name] -= 1

    def _status(self, name):
        state = FAILED if self.cures[name] > 0 and name not in self.taskless else RUNNING
        task = TaskStatus(0, state, "here", TRACE if state == FAILED else "")
        return ConnectorStatus(name, self.state.get(name, RUNNING), "here", () if name in self.taskless else (task,))


class Ends(threading.Event):
    """Waiting lets the time of a cluster pass; set after so many seconds. `happen`: what happens at which time."""

    def __init__(self, cluster, *, after, happen=None):
        super().__init__()
        self._cluster, self._after, self._happen = cluster, after, dict(happen or {})

    def wait(self, timeout=None):
        self._cluster.now += timeout
        for at in [at for at in self._happen if at <= self._cluster.now]:
            self._happen.pop(at)()
        if self._cluster.now >= self._after:
            self.set()
        return self.is_set()


def supervised(cluster, names=None, *, after=600.0, happen=None):
    supervisor = Supervisor(
        cluster,
        names,
        policy=POLICY,
        healthy_after=HEALTHY_AFTER,
        poll=0.5,
        clock=lambda: cluster.now,
        chance=lambda: 1.0,
    )
    with capture_logs() as logs:
        try:
            supervisor.run(Ends(cluster, after=after, happen=happen))
        except RestartsExhausted as exhausted:
            return logs, exhausted
    return logs, None


def events(logs):
    return [log["event"] for log in logs]


def test_a_failed_task_is_restarted_until_it_runs_and_the_waits_double_up_to_the_longest():
    cluster = Cluster({"shop": 4})
    logs, exhausted = supervised(cluster)
    times = [0.0, *(at for _, at in cluster.restarts)]
    assert [round(b - a) for a, b in pairwise(times)] == [1, 2, 4, 4]
    assert exhausted is None
    assert events(logs) == ["connector failed", "connector restarted"] * 4 + ["connector recovered"]
    assert "factfold cdc prepare" in logs[0]["remedy"]
    assert "Publication autocreation is disabled" in logs[0]["cause"]


def test_what_no_restart_cures_is_given_up_with_its_causes_and_its_remedy():
    cluster = Cluster({"shop": 100})
    logs, exhausted = supervised(cluster)
    assert len(cluster.restarts) == POLICY.limit
    assert (logs[-1]["event"], logs[-1]["log_level"]) == ("connector given up", "error")
    assert [failure.trace[-1] for failure in exhausted.failures] == ["Exception: Publication autocreation is disabled"]
    assert "Publication autocreation is disabled" in exhausted.message
    assert "factfold cdc prepare" in exhausted.remedy
    assert cluster.now < 60


def test_the_others_go_on_being_watched_when_one_is_given_up():
    cluster = Cluster({"lost": 100, "shop": 0})
    _, exhausted = supervised(cluster, happen={100.0: lambda: cluster.cures.update(shop=1)})
    assert next(at for name, at in cluster.restarts if name == "shop") > 100
    assert [failure.place for failure in exhausted.failures] == ["lost on worker here"]


def test_one_that_was_given_up_and_repaired_by_hand_is_supervised_again():
    cluster = Cluster({"shop": 100, "other": 0})
    repaired = {100.0: lambda: cluster.cures.update(shop=0), 200.0: lambda: cluster.cures.update(shop=1)}
    logs, exhausted = supervised(cluster, happen=repaired)
    assert exhausted is None
    assert len(cluster.restarts) == POLICY.limit + 1
    assert events(logs).count("connector recovered") == 2


@pytest.mark.parametrize(("share", "restarts"), [(1.5, 10), (0.5, POLICY.limit)])
def test_restarts_are_counted_anew_after_a_healthy_while_and_not_before(share, restarts):
    cluster = Cluster({"shop": 1})
    every = HEALTHY_AFTER * share
    again = {every * n: lambda: cluster.cures.update(shop=1) for n in range(1, 10)}
    _, exhausted = supervised(cluster, happen=again)
    assert (len(cluster.restarts), exhausted is None) == (restarts, restarts > POLICY.limit)


def test_a_restart_that_the_worker_refuses_is_tried_again(monkeypatch):
    cluster = Cluster({"shop": 1})
    refusals = iter([ConnectUnavailable("gone", remedy=""), UnknownConnector("gone", remedy="", status=404)])
    restart = cluster.restart

    def refusing(name, *, only_failed):
        for refusal in refusals:
            raise refusal
        restart(name, only_failed=only_failed)

    monkeypatch.setattr(cluster, "restart", refusing)
    logs, exhausted = supervised(cluster)
    assert exhausted is None
    assert events(logs) == [
        "connector failed", "restart refused", "restart refused", "connector restarted", "connector recovered",
    ]  # fmt: skip


@pytest.mark.parametrize("state", [PAUSED, STOPPED])
def test_one_that_somebody_put_to_rest_is_left_alone(state):
    cluster = Cluster({"shop": 1}, state={"shop": state})
    assert supervised(cluster) == ([], None)
    assert cluster.restarts == []


def test_a_worker_that_is_away_is_waited_for_and_told_of_once():
    cluster = Cluster({"shop": 1}, away=True)
    logs, exhausted = supervised(cluster, happen={60.0: lambda: setattr(cluster, "away", False)})
    assert exhausted is None
    assert events(logs) == [
        "worker away", "worker back", "connector failed", "connector restarted", "connector recovered",
    ]  # fmt: skip


def test_a_connector_that_runs_without_a_task_for_long_is_restarted():
    cluster = Cluster({"shop": 0}, taskless={"shop"})
    logs, exhausted = supervised(cluster)
    assert exhausted is None
    ((_, at),) = cluster.restarts
    assert TASKLESS_SECONDS < at < TASKLESS_SECONDS + 3
    assert "runs without a task" in logs[0]["cause"]


@pytest.mark.parametrize("java_class", [MirrorCheckpoint.JAVA_CLASS, "MirrorSourceConnector", "MirrorSource"])
def test_a_mirror_that_has_nothing_to_copy_yet_is_left_alone(java_class):
    cluster = Cluster({"copies": 0}, taskless={"copies"}, classes={"copies": java_class})
    assert supervised(cluster) == ([], None)
    assert cluster.restarts == []


def test_only_those_asked_for_are_watched():
    cluster = Cluster({"shop": 1, "other": 1})
    supervised(cluster, ["shop"])
    assert [name for name, _ in cluster.restarts] == ["shop"]


def test_a_name_that_nobody_knows_is_refused_and_one_that_goes_later_is_not():
    with pytest.raises(UnknownConnector):
        supervised(Cluster({"shop": 0}), ["shpo"])
    cluster = Cluster({"shop": 1, "other": 0})
    assert supervised(cluster, ["shop", "other"], happen={0.5: lambda: cluster.cures.pop("shop")})[1] is None


def test_one_that_comes_later_is_watched_too_where_all_are():
    cluster = Cluster({})
    supervised(cluster, happen={50.0: lambda: cluster.cures.update(late=1)})
    assert [name for name, _ in cluster.restarts] == ["late"]


def test_connectors_that_fail_together_do_not_start_together():
    assert [first_wait(chance) for chance in (0.0, 0.5, 1.0)] == [0.5, 0.75, 1.0]
    waits = [RESTARTS.delay(n + 1) for n in range(RESTARTS.limit)]
    assert 250 < sum(waits) < 350  # five minutes, as its comment says


def first_wait(chance):
    supervisor = Supervisor(Cluster({"shop": 1}), policy=POLICY, clock=lambda: 0.0, chance=lambda: chance)
    with capture_logs():
        supervisor.look()
    return supervisor._watched["shop"].due


# ---- Findings of a source whose faults no test can plant on a shared server: its settings, and a slot about to be lost


SHOP = postgres(tables=("public.customers",))
SERVER = ServerFacts(
    database="shop",
    version=180001,
    standby=False,
    wal_level="logical",
    slots=1,
    max_slots=4,
    senders=1,
    max_senders=4,
    slot_cap=1 << 30,
)
SLOT = ReplicationSlot(
    name="factfold_shop", plugin="pgoutput", database="shop", active=True, wal_status="reserved", lag_bytes=100,
    retained_bytes=2048, safe_bytes=1 << 29,
)  # fmt: skip


def unwell(findings):
    return [(one.severity, one.result, one.remedy) for one in findings if one.severity is not Severity.OK]


def test_a_server_and_a_slot_that_are_well_have_nothing_found():
    assert unwell(of_server(SERVER, SHOP)) == unwell(of_room(SERVER, SLOT)) == unwell(of_slot(SLOT, SHOP, SERVER)) == []


@pytest.mark.parametrize(
    ("changes", "words", "remedy"),
    [
        ({"wal_level": "replica"}, "wal_level is replica", "ALTER SYSTEM SET wal_level = 'logical'"),
        ({"standby": True}, "is a standby", "primary"),
        ({"version": 130021}, "PostgreSQL 13, whose pgoutput passes on no marks", "PostgreSQL 14 or newer"),
        ({"database": "other"}, "this is database other, the connector reads shop", "URL"),
    ],
)
def test_a_server_that_cannot_be_captured_from_is_an_error(changes, words, remedy):
    ((severity, found, told),) = unwell(of_server(replace(SERVER, **changes), SHOP))
    assert (severity, words in found, remedy in told) == (Severity.ERROR, True, True)


@pytest.mark.parametrize(
    ("full", "what_to_do"), [({"senders": 4}, "ALTER SYSTEM SET max_wal_senders = 14"), ({"slots": 4}, "")]
)
def test_a_server_without_a_sender_or_a_slot_left_is_an_error_for_those_who_have_none(full, what_to_do):
    ((severity, found, remedy),) = unwell(of_room(replace(SERVER, **full), None))
    assert (severity, found) == (Severity.ERROR, "4 of 4 in use, and 1 more is required")
    assert what_to_do in remedy
    assert unwell(of_room(replace(SERVER, **full), SLOT)) == []


def test_slots_without_a_limit_are_a_warning():
    ((severity, found, remedy),) = unwell(of_room(replace(SERVER, slot_cap=None), SLOT))
    assert (severity, "fills the disk" in found) == (Severity.WARNING, True)
    assert "max_slot_wal_keep_size" in remedy


@pytest.mark.parametrize(
    ("changes", "severity", "words"),
    [
        ({"wal_status": "unreserved"}, Severity.ERROR, "about to lose its place: it holds 2.0 KiB of log"),
        ({"wal_status": "lost", "retained_bytes": None}, Severity.ERROR, "has lost its place"),
        ({"retained_bytes": (1 << 29) + 1}, Severity.WARNING, "holds 512.0 MiB of log"),
        ({"active": False}, Severity.WARNING, "slot factfold_shop has no reader and holds 2.0 KiB of log"),
        ({"database": "other"}, Severity.ERROR, "is of pgoutput in other"),
        ({"plugin": "decoderbufs"}, Severity.ERROR, "is of decoderbufs in shop"),
    ],
)
def test_a_slot_that_is_not_well_is_found(changes, severity, words):
    ((found_severity, found, remedy),) = unwell(of_slot(replace(SLOT, **changes), SHOP, SERVER))
    assert (found_severity, words in found, bool(remedy)) == (severity, True, True)


def test_a_slot_without_a_limit_may_hold_a_gigabyte_unremarked():
    boundless = replace(SERVER, slot_cap=None)
    assert unwell(of_slot(replace(SLOT, retained_bytes=1 << 30), SHOP, boundless)) == []
    assert unwell(of_slot(replace(SLOT, retained_bytes=(1 << 30) + 1), SHOP, boundless)) != []


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (3 << 19, "1.5 MiB"),
        (1 << 40, "1.0 TiB"),
        (1 << 50, "1024.0 TiB"),
    ],
)
def test_sizes_are_written_for_people(count, text):
    assert size(count) == text


# ---- Java's stories in short, and what to do about them


PAST_TOLERANCE = """org.apache.kafka.connect.errors.ConnectException: Tolerance exceeded in error handler
\tat org.apache.kafka.connect.runtime.errors.RetryWithToleranceOperator.execAndHandleError(X.java:260)
Caused by: io.debezium.DebeziumException: Creation of replication slot failed
\tat io.debezium.connector.postgresql.PostgresConnectorTask.start(PostgresConnectorTask.java:188)
\t... 9 more
Caused by: org.postgresql.util.PSQLException: FATAL: permission denied to start WAL sender
  Detail: Only roles with the REPLICATION attribute may start a WAL sender process.
\tat org.postgresql.core.v3.QueryExecutorImpl.receiveErrorResponse(QueryExecutorImpl.java:2734)
\t... 9 more
"""


def test_a_trace_becomes_its_causes_with_the_root_last() -> None:
    assert short_trace(PAST_TOLERANCE) == (
        "ConnectException: Tolerance exceeded in error handler",
        "DebeziumException: Creation of replication slot failed",
        "PSQLException: FATAL: permission denied to start WAL sender",
    )


def test_a_trace_of_many_causes_keeps_the_last_five() -> None:
    trace = "\n".join(f"Caused by: java.lang.Exception: {number}" for number in range(9))

    assert short_trace(trace) == tuple(f"Exception: {number}" for number in range(4, 9))


def test_no_trace_gives_no_causes() -> None:
    assert short_trace("") == ()


def test_objects_printed_into_a_long_message_are_left_out() -> None:
    state = "PostgresOffsetContext [schema=Schema{STRUCT}, source=source_info[server='x', " + "y" * 400 + "]]"
    line = f"io.debezium.DebeziumException: read {state}, but this is no longer available on the server"

    assert short_trace(line) == (
        "DebeziumException: read PostgresOffsetContext, but this is no longer available on the server",
    )


def test_a_line_is_never_longer_than_a_few_terminal_lines() -> None:
    assert len(short_message("x" * 5000)) == MAX_LINE


@each_row(
    ("said", "remedy"),
    [
        ('FATAL: password authentication failed for user "x"', "check the user, and the password"),
        ("Access denied for user 'x'@'y' (using password: YES)", "check the user, and the password"),
        ('FATAL: no pg_hba.conf entry for host "1.2.3.4", user "x", database "shop"', "pg_hba.conf"),
        ('connection failed: FATAL:  database "shop" does not exist', "check the database name"),
        ('connection to server at "db" failed: FATAL:  role "x" does not exist', "create the role"),
        ('FATAL:  role "x" is not permitted to log in', "LOGIN"),
        (
            "permission denied to alter role\nDETAIL:  Only roles with the CREATEROLE attribute and the ADMIN option "
            'on role "x" may alter this role.',
            "superuser",
        ),
        ("must be superuser to alter replication roles or change replication attribute", "superuser"),
        ("must be superuser to alter replication users", "superuser"),
        ("must be superuser to create replication users", "superuser"),
        ("permission denied to create role", "superuser"),
        ('permission denied for database "shop"\nDETAIL:  User does not have CONNECT privilege.', "GRANT CONNECT"),
        ("permission denied for database shop", "needs CREATE on the database"),
        ("FATAL: permission denied to start WAL sender", "factfold cdc prepare"),
        ("FATAL: must be superuser or replication role to start walsender", "factfold cdc prepare"),
        ("ERROR: permission denied for table items", "factfold cdc prepare"),
        ("must be owner of publication shop_pub", "publication's owner"),
        ("must be owner of table items", "tables' owner"),
        ("must be superuser to create FOR ALL TABLES publication", "name another in publication="),
        (
            'publication "p" is defined as FOR ALL TABLES\n'
            "DETAIL:  Tables cannot be added to or dropped from FOR ALL TABLES publications.",
            "name another in publication=",
        ),
        ("Publication autocreation is disabled, please create one and restart the connector", "create the publication"),
        ('publication "p" does not exist', "create the publication"),
        ('ERROR: replication slot "shop" is active for PID 4711', "stop the other connector"),
        ("all replication slots are in use", "raise max_replication_slots"),
        ("but this is no longer available on the server", "--forget"),
        ('connection to server at "db" failed: Connection refused', "start the database"),
        ("Connection to db:5432 refused. Check that the hostname and port are correct", "start the database"),
        ("HTTP 401 Unauthorized", "auth="),
        ("User cannot access the resource.", "auth="),
        ("Forbidden", "auth="),
        ("Connector nope not found", "factfold cdc status"),
        ("something new", "worker's log"),
    ],
)
def test_each_cause_has_its_own_remedy(said: str, remedy: str) -> None:
    assert remedy in remedy_for(short_message(said))
