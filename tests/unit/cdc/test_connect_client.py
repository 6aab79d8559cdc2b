"""The Connect client against scripted answers: what it asks again, what it gives up on, what it says then."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests
import responses
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pydantic import SecretStr
from structlog.testing import capture_logs

from cdc.connect.client import ConnectClient
from cdc.errors import ConnectRejected, ConnectUnavailable, InvalidConnector, UnknownConnector
from tests.rows import each_row

URL = "http://connect:8083"


@pytest.fixture
def answers() -> Iterator[responses.RequestsMock]:
    with responses.RequestsMock(assert_all_requests_are_fired=True) as mock:
        yield mock


@pytest.fixture
def client() -> Iterator[ConnectClient]:
    with ConnectClient(URL, timeout=1.0, patience=1.5) as client:
        yield client


def refusal(message: str, code: int) -> dict[str, object]:
    return {"error_code": code, "message": message}


def test_a_status_is_typed_down_to_its_tasks_and_without_one_nothing_runs(answers, client):
    failed = {"id": 0, "state": "FAILED", "worker_id": "w:1", "trace": "boom"}
    for tasks in ([failed], []):
        body = {"name": "shop", "connector": {"state": "RUNNING", "worker_id": "w:1"}, "tasks": tasks}
        answers.get(f"{URL}/connectors/shop/status", json=body)
    status = client.status("shop")
    assert (status.state, status.running, status.failure) == ("RUNNING", False, ("task 0", "boom"))
    assert status.summary() == "RUNNING, task 0 FAILED"
    assert not client.status("shop").running


EOF = "[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred in violation of protocol"
BUSY: list[dict[str, Any]] = [
    {"status": 409, "json": refusal("Cannot complete request momentarily due to stale configuration", 409)},
    {"status": 503, "json": refusal("Service unavailable", 503)},
    {"status": 500, "json": refusal("Request timed out. The worker is currently flushing updates", 500)},
    {"status": 500, "json": refusal("Request cannot be completed because a rebalance is expected", 500)},
    {"status": 500, "json": refusal("Failed to modify offsets for source connector shop", 500)},
    {"status": 404, "json": refusal("HTTP 404 Not Found", 404)},
    {"body": requests.ConnectionError("reset")},
    {"body": requests.exceptions.SSLError(EOF)},  # a greeting cut short by a worker that goes down
]


@pytest.mark.parametrize("first", BUSY, ids=str)
def test_a_cluster_that_is_busy_with_itself_is_asked_again(answers, client, first):
    answers.get(f"{URL}/connectors", **first)
    answers.get(f"{URL}/connectors", json=["b", "a"])
    with capture_logs() as logs:
        assert client.connectors() == ("a", "b")
    assert [log["event"] for log in logs] == ["stamina.retry_scheduled"]


def test_a_worker_that_never_answers_is_given_up_with_its_address(client: ConnectClient) -> None:
    with responses.RequestsMock() as answers:
        answers.get(f"{URL}/connectors", body=requests.ConnectionError("refused"))
        with pytest.raises(ConnectUnavailable) as failure:
            client.connectors()

    assert failure.value.message == f"no Kafka Connect worker answers at {URL}"
    assert failure.value.place == "GET /connectors"


def test_a_rebalance_that_does_not_end_gives_connect_s_own_words(client: ConnectClient) -> None:
    with responses.RequestsMock() as answers:
        answers.get(f"{URL}/connectors", json=refusal("Cannot complete: rebalance in process", 409), status=409)
        with pytest.raises(ConnectRejected) as failure:
            client.connectors()

    assert failure.value.status == 409
    assert failure.value.message == "Kafka Connect refused: Cannot complete: rebalance in process"
    assert failure.value.remedy == "try again when the Connect cluster has settled"


def test_a_wrong_configuration_is_refused_at_once_in_one_line(answers, client):
    said = (
        "Connector configuration is invalid and contains the following 1 error(s):\n"
        'FATAL: password authentication failed for user "x"\n'
        "You can also find the above list of errors at the endpoint `/connector-plugins`"
    )
    answers.put(f"{URL}/connectors/shop/config", json=refusal(said, 400), status=400)

    with pytest.raises(ConnectRejected) as failure:
        client.put_config("shop", {"connector.class": "X"})

    assert failure.value.message == ('Kafka Connect refused: FATAL: password authentication failed for user "x"')
    assert "password" in failure.value.remedy


def test_a_missing_connector_and_another_service_are_errors_of_their_own(answers, client):
    answers.get(f"{URL}/connectors/nope/config", json=refusal("Connector nope not found", 404), status=404)
    with pytest.raises(UnknownConnector, match="nope not found"):
        client.config("nope")
    answers.get(f"{URL}/connectors", body="<html>hello</html>")
    with pytest.raises(ConnectRejected, match="is not Kafka Connect"):
        client.connectors()


def test_names_are_escaped_in_paths(answers: responses.RequestsMock, client: ConnectClient) -> None:
    answers.put(f"{URL}/connectors/a%2Fb%20c/stop", status=204)
    client.stop("a/b c")


def test_a_restart_says_what_it_includes(answers: responses.RequestsMock, client: ConnectClient) -> None:
    wanted = responses.matchers.query_param_matcher({"includeTasks": "true", "onlyFailed": "true"})
    tasks = [{"id": 0, "state": "RESTARTING", "worker_id": "w:1"}]
    body = {"name": "shop", "connector": {"state": "RUNNING", "worker_id": "w:1"}, "tasks": tasks}
    answers.post(f"{URL}/connectors/shop/restart", match=[wanted], status=202, json=body)
    answers.post(f"{URL}/connectors/shop/restart", status=204)

    will_be = client.restart("shop", only_failed=True)

    assert will_be is not None
    assert will_be.summary() == "RUNNING, task 0 RESTARTING"
    assert client.restart("shop", include_tasks=False) is None


def test_a_connector_can_be_made_stopped(answers: responses.RequestsMock, client: ConnectClient) -> None:
    answers.post(f"{URL}/connectors", status=201, json={})

    client.create("shop", {"connector.class": "X"}, state="STOPPED")

    sent = answers.calls[0].request.body
    assert json.loads(sent or b"") == {
        "name": "shop",
        "config": {"name": "shop", "connector.class": "X"},
        "initial_state": "STOPPED",
    }


def test_validation_lists_what_is_wrong_by_setting(answers: responses.RequestsMock, client: ConnectClient) -> None:
    wrong = {"value": {"name": "database.user", "errors": ["must be set"]}}
    right = {"value": {"name": "topic.prefix", "errors": []}}
    path = f"{URL}/connector-plugins/PostgresConnector/config/validate"
    unanswered = {"definition": {"name": "database.password"}, "value": None}
    answers.put(path, json={"configs": [wrong, right, unanswered]})

    problems = client.validate({"connector.class": "io.debezium.PostgresConnector"})

    assert [(problem.key, problem.message) for problem in problems] == [("database.user", "must be set")]


def test_a_worker_that_stumbles_over_a_configuration_is_asked_what_is_wrong_with_it(answers, client):
    stumbled = {"error_code": 500, "message": 'because the return value of "ConfigInfo.configValue()" is null'}
    answers.post(f"{URL}/connectors", json=stumbled, status=500)
    wrong = {"value": {"name": "database.user", "errors": ["Unable to connect: Access denied for user 'x'@'y'"]}}
    answers.put(f"{URL}/connector-plugins/MySqlConnector/config/validate", json={"configs": [wrong, {"value": None}]})

    with pytest.raises(ConnectRejected, match=r"database\.user: Unable to connect: Access denied") as refused:
        client.create("shop", {"connector.class": "io.debezium.MySqlConnector"})

    assert refused.value.remedy == "check the user, and the password behind the connector's reference"


def test_health_is_a_plain_answer_even_when_nobody_is_there(client: ConnectClient) -> None:
    with responses.RequestsMock() as answers:
        answers.get(f"{URL}/health", body=requests.ConnectionError("refused"))
        health = client.health()

    assert not health.healthy
    assert URL in health.message


def test_a_connector_that_was_made_by_a_request_whose_answer_was_lost_is_made_and_another_one_is_refused(
    answers: responses.RequestsMock, client: ConnectClient
) -> None:
    answers.post(f"{URL}/connectors", body=requests.ConnectionError("reset"))
    answers.post(f"{URL}/connectors", json=refusal("Connector shop already exists", 409), status=409)
    answers.get(f"{URL}/connectors/shop/config", json={"name": "shop", "connector.class": "X"})
    client.create("shop", {"connector.class": "X"})
    with pytest.raises(ConnectRejected, match="already exists"):
        client.create("shop", {"connector.class": "Y"})


@pytest.mark.parametrize(
    ("url", "auth"),
    [
        ("http://ann:pass%2Fword@connect:8083/", None),
        (URL, ("ann", "pass/word")),
        (URL, ("ann", SecretStr("pass/word"))),
    ],
)
def test_who_asks_is_told_to_the_worker_and_to_nobody_else(answers, url, auth):
    answers.get(f"{URL}/connectors", body=requests.ConnectionError("refused"))
    answers.get(f"{URL}/connectors", json=refusal("no", 403), status=403)

    with (
        ConnectClient(url, auth=auth, headers={"X-Token": "pass/word"}) as client,
        pytest.raises(ConnectRejected) as no,
    ):
        client.connectors()

    sent = answers.calls[-1].request.headers
    assert sent["Authorization"] == f"Basic {b64encode(b'ann:pass/word').decode()}"
    assert sent["X-Token"] == "pass/word"
    shown = f"{client!r} {client.url} {no.value} {no.value.remedy} {no.value.place}"
    assert "pass/word" not in shown
    assert "pass%2Fword" not in shown


def test_a_worker_that_is_slow_is_not_taken_for_one_that_is_away(client: ConnectClient) -> None:
    with responses.RequestsMock() as answers:
        answers.put(f"{URL}/connectors/shop/config", body=requests.ReadTimeout("read timed out"))
        with pytest.raises(ConnectUnavailable, match="did not answer it within") as slow:
            client.put_config("shop", {"connector.class": "X"})

    assert slow.value.place == "PUT /connectors/shop/config"
    assert "start the worker" not in slow.value.remedy
    assert "its database" in slow.value.remedy


@pytest.mark.parametrize("files", [{"verify": "/nope.pem"}, {"certificate": "/nope.pem"}])
def test_a_certificate_that_is_not_there_is_a_typed_error(files: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"https://127.0.0.1:{server.getsockname()[1]}"
        with ConnectClient(url, **files) as client, pytest.raises(InvalidConnector, match=r"/nope\.pem"):  # type: ignore[arg-type]
            client.connectors()


@pytest.mark.parametrize("url", ["http://[x", "connect:8083", "http://", "http://connect:port", "ftp://connect"])
def test_a_url_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidConnector, match="URL of the Connect worker cannot be read"):
        ConnectClient(url)


@pytest.mark.parametrize("body", [{"status": "UP"}, [], "hello", [{"a": 1}]])
def test_another_service_that_speaks_json_is_recognised(answers, client, body):
    for path in ("/", "/connectors/shop/status", "/connectors/shop/offsets"):
        answers.get(f"{URL}{path}", json=body)
    for ask in (client.version, lambda: client.status("shop"), lambda: client.offsets("shop")):
        with pytest.raises(ConnectRejected, match="is not Kafka Connect: it sent JSON of another kind"):
            ask()


REDIRECTS = [301, 302, 303, 307, 308]


@each_row("status", REDIRECTS)
@each_row("target", ["http://elsewhere:80/connectors", "https://connect:8083/", "/other", ""])
def test_no_redirect_takes_headers_to_another_host(answers: responses.RequestsMock, status: int, target: str) -> None:
    answers.reset()
    answers.get(f"{URL}/connectors", status=status, headers={"Location": target})
    with ConnectClient(URL, headers={"X-Api-Key": "secret-word"}) as client:
        with pytest.raises(ConnectRejected, match="which is not followed") as refused:
            client.connectors()
    assert len(answers.calls) == 1
    assert "secret-word" not in str(refused.value)


def test_a_redirect_shows_no_secret_of_its_target(answers: responses.RequestsMock, client: ConnectClient) -> None:
    answers.get(f"{URL}/connectors", status=302, headers={"Location": "https://u:secret-word@sso/login?t=secret-word"})
    with pytest.raises(ConnectRejected, match="redirects to https://sso,") as refused:
        client.connectors()
    assert "secret-word" not in str(refused.value)


CHANGES = {
    "pause": ("PUT", "/connectors/shop/pause", lambda client: client.pause("shop")),
    "stop": ("PUT", "/connectors/shop/stop", lambda client: client.stop("shop")),
    "resume": ("PUT", "/connectors/shop/resume", lambda client: client.resume("shop")),
    "delete": ("DELETE", "/connectors/shop", lambda client: client.delete("shop")),
    "create": ("POST", "/connectors", lambda client: client.create("shop", {})),
    "delete offsets": ("DELETE", "/connectors/shop/offsets", lambda client: client.delete_offsets("shop")),
    "health": ("GET", "/health", lambda client: client.health()),
}


@pytest.mark.parametrize("change", [name for name in CHANGES if name != "health"])
def test_the_answer_of_another_service_is_not_taken_for_a_change(answers, client, change):
    method, path, ask = CHANGES[change]
    answers.add(method, f"{URL}{path}", body="<html>signed in</html>", content_type="text/html")
    with pytest.raises(ConnectRejected, match="is not Kafka Connect: it sent no JSON"):
        ask(client)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_is_redirected_is_not_taken_for_done(answers, client, change):
    method, path, ask = CHANGES[change]
    answers.add(method, f"{URL}{path}", status=302, headers={"Location": f"{URL}/welcome"})
    with pytest.raises(ConnectRejected, match="is not followed"):
        ask(client)
    assert len(answers.calls) == 1


# ---- The Connect client over TLS, with a listener and a certificate of our own making


HOST = "localhost"


class Worker(BaseHTTPRequestHandler):
    """A worker without connectors, for those who say who they are."""

    def do_GET(self) -> None:
        known = self.headers.get("Authorization") == "Basic YW5uOnNlY3JldA=="
        body = b"[]" if known else b'{"message": "HTTP 401 Unauthorized"}'
        self.send_response(200 if known else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of our host, signed by itself, and its key behind it."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "worker.pem"
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    file.write_bytes(made.public_bytes(pem) + secret)
    return file


@pytest.fixture(scope="module")
def port(certificate: Path) -> Iterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with HTTPServer(("127.0.0.1", 0), Worker) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_a_worker_whose_authority_is_known_answers_those_it_knows(port: int, certificate: Path) -> None:
    with ConnectClient(f"https://ann:secret@{HOST}:{port}", verify=str(certificate)) as client:
        assert client.connectors() == ()


@pytest.mark.parametrize(
    ("host", "trusted", "reason"), [(HOST, False, "self-signed certificate"), ("127.0.0.1", True, "not valid for")]
)
def test_a_certificate_that_is_not_trusted_is_said_at_once(port, certificate, host, trusted, reason):
    began, verify = time.monotonic(), str(certificate) if trusted else True
    with ConnectClient(f"https://{host}:{port}", verify=verify, patience=60.0) as client:
        for ask in (client.connectors, client.health):
            with pytest.raises(ConnectUnavailable, match=reason) as refused:
                ask()
            assert "verify=" in refused.value.remedy
    assert time.monotonic() - began < client.patience


def test_tls_towards_a_worker_without_it_is_said_to_be_that(certificate: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), Worker) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        with (
            ConnectClient(f"https://{HOST}:{server.server_address[1]}", verify=str(certificate)) as client,
            pytest.raises(ConnectUnavailable, match="no TLS"),
        ):
            client.connectors()
        thread.join()
