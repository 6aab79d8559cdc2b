"""Java's stories in short, and what to do about them."""

from __future__ import annotations

from cdc.connect.failures import MAX_LINE, remedy_for, short_message, short_trace
from tests.rows import each_row

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
