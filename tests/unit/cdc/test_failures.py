"""Java's stories in short, and what to do about them."""

from __future__ import annotations

from cdc.failures import MAX_LINE, remedy_for, short_message, short_trace

TRACE = """org.apache.kafka.connect.errors.ConnectException: Tolerance exceeded in error handler
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
    assert short_trace(TRACE) == (
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


def test_connect_s_heading_and_advertisement_are_left_out() -> None:
    message = (
        "Connector configuration is invalid and contains the following 1 error(s):\n"
        'Error while validating connector config: FATAL: password authentication failed for user "x"\n'
        "You can also find the above list of errors at the endpoint "
        "`/connector-plugins/{connectorType}/config/validate`"
    )

    assert short_message(message) == (
        'Error while validating connector config: FATAL: password authentication failed for user "x"'
    )


def test_known_causes_have_their_own_remedy() -> None:
    assert "password" in remedy_for('FATAL: password authentication failed for user "x"')
    assert "prepare_source" in remedy_for("Publication autocreation is disabled")
    assert "--forget" in remedy_for("but this is no longer available on the server")
    assert "worker's log" in remedy_for("something new")
