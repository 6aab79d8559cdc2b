"""Settings of clients, and answers of a schema registry that no real one gives on demand, on a real socket."""

from __future__ import annotations

import json
import threading
import traceback
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from eventstore import RegistrySettings, Settings
from eventstore.errors import InvalidSettings, RegistryUnreachable, SchemaError, SchemaIncompatible, UnknownSchema
from eventstore.event_types import event_type_of
from eventstore.kafka import ConfluentRegistry, configured_registry
from eventstore.kafka.confluent_registry import registered_for
from eventstore.settings import KafkaSettings
from tests.errors import raises
from tests.orders import Order
from tests.rows import each_row

Answer = tuple[int, bytes]


PLACED = event_type_of(Order.Placed).registered


class Server:
    """Gives the answers it was told, the last one for ever, and remembers what it was asked."""

    def __init__(self) -> None:
        self.answers: list[Answer] = [(200, b'{"id": 7}')]
        self.asked: list[tuple[str, str]] = []
        self.authorization: str | None = None
        server = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                server.asked.append((self.command, self.path))
                server.authorization = self.headers.get("Authorization")
                status, body = server.answers.pop(0) if len(server.answers) > 1 else server.answers[0]
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_PUT = answer

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def says(self, status: int, body: bytes) -> None:
        self.answers = [(status, body)]

    def stop(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.stop()


def failure(status: int, code: int, message: str = "it said so") -> Answer:
    return status, json.dumps({"error_code": code, "message": message}).encode()


def registry(server: Server, **settings: Any) -> ConfluentRegistry:
    return ConfluentRegistry(RegistrySettings(url=server.url, **settings))


def test_a_schema_is_registered_under_its_event_type_and_gets_the_id_it_was_given(server: Server) -> None:
    with registry(server) as asked:
        (given,) = asked.register([PLACED])
    assert (given.id, given.name, given.schema, given.registry) == (7, PLACED.name, PLACED.schema, server.url)
    assert [path.partition("?")[0] for _, path in server.asked] == ["/subjects/order.placed/versions"]


def test_the_rule_of_a_category_is_set_before_its_schema_is_held_against_it(server: Server) -> None:
    with registry(server, compatibility={"order": "FULL", "parcel": "NONE"}) as asked:
        asked.register([PLACED])
    assert [(verb, path.partition("?")[0]) for verb, path in server.asked] == [
        ("PUT", "/config/order.placed"),
        ("POST", "/subjects/order.placed/versions"),
    ]


def test_without_leave_to_register_a_schema_is_looked_up(server: Server) -> None:
    server.says(200, b'{"subject": "order.placed", "version": 1, "id": 7, "schema": "{}"}')
    with registry(server, auto_register=False, compatibility={"order": "FULL"}) as asked:
        assert asked.register([PLACED])[0].id == 7
        assert [(verb, path.partition("?")[0]) for verb, path in server.asked] == [("POST", "/subjects/order.placed")]


@pytest.mark.parametrize("code", [40401, 40403])
def test_a_schema_that_may_not_be_registered_and_is_not_there_says_how_to_register_it(server, code):
    server.answers = [failure(404, code)]
    with registry(server, auto_register=False) as asked, raises(UnknownSchema, remedy="factfold schema register"):
        asked.register([PLACED])


def test_a_schema_the_rule_forbids_is_incompatible_with_subject_and_reason_in_one_line(server: Server) -> None:
    server.answers = [failure(409, 409, "Incompatible artifact:\n order.placed" + "x" * 5000)]
    with (
        registry(server) as asked,
        pytest.raises(SchemaIncompatible, match=r"Incompatible artifact: order\.placed") as no,
    ):
        asked.register([PLACED])
    assert no.value.subject == "order.placed"
    assert len(no.value.message) < 700
    assert "\n" not in no.value.message


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_registry_that_is_not_ready_is_asked_again_and_then_away(server: Server, status: int) -> None:
    server.answers = [failure(status, status), (200, b'{"id": 7}')]
    with registry(server) as asked:
        assert asked.register([PLACED])[0].id == 7
        server.answers = [failure(status, status)]
        with pytest.raises(RegistryUnreachable, match=str(status)):
            asked.register([event_type_of(Order.Placed).registered.of({**PLACED.schema, "version": 2})])


def test_a_registry_that_is_not_there_is_unreachable_and_says_where_it_was_looked_for(server: Server) -> None:
    server.stop()
    with registry(server) as asked, pytest.raises(RegistryUnreachable) as away:
        asked.register([PLACED])
    assert away.value.place == f"order.placed at {server.url}"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"<html>welcome</html>"),
        (200, b"{}"),
        (200, b"[]"),
        (200, b'{"id": "7"}'),
        (401, b"who are you"),
        (403, b'{"error_code": 40301, "message": "no"}'),
        (404, b"<html>nothing here</html>"),
        (422, b'{"error_code": 42201, "message": "no schema"}'),
    ],
)
def test_any_other_answer_is_a_refusal_that_names_the_address(server: Server, status: int, body: bytes) -> None:
    server.says(status, body)
    with registry(server) as asked, raises(SchemaError, code="registry-refused") as refused:
        asked.register([PLACED])
    assert server.url in str(refused.value)


def test_a_request_that_is_refused_is_not_said_to_be_one_of_passwords(server: Server) -> None:
    server.says(400, b'{"error_code": 0, "message": "Failed to discover artifact type from content."}')
    with registry(server) as asked, raises(SchemaError, code="registry-refused") as refused:
        asked.schema(2)
    assert "password" not in str(refused.value.remedy)
    assert "factfold cdc doctor" in str(refused.value.remedy)


@pytest.mark.parametrize("text", ["{", "[]", '{"type": "string"}', '"string"'])
def test_a_schema_that_is_no_event_type_is_a_refusal(server: Server, text: str) -> None:
    server.says(200, json.dumps({"schema": text}).encode())
    with registry(server) as asked, raises(SchemaError, code="registry-refused"):
        asked.schema(3)


def test_a_schema_is_found_by_its_id(server: Server) -> None:
    server.says(200, json.dumps({"schema": json.dumps(PLACED.schema)}).encode())
    with registry(server) as asked:
        assert asked.schema(3).schema == PLACED.schema
        server.answers = [failure(404, 40403)]
        with pytest.raises(UnknownSchema):
            asked.schema(4)


def test_user_and_password_are_sent_and_never_shown(server: Server) -> None:
    with registry(server, user="ada", password=SecretStr("sentinel")) as asked:
        asked.register([PLACED])
        assert server.authorization == "Basic YWRhOnNlbnRpbmVs"
        server.says(401, b"no")
        with raises(SchemaError, code="registry-refused") as refused:
            asked.schema(1)
    assert "sentinel" not in f"{refused.value} {refused.value.__cause__!r} {asked!r} {asked.address}"


@pytest.mark.parametrize("text", [None, "no certificate"])
def test_certificates_that_cannot_be_read_are_named(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "ca.pem"
    if text is not None:
        file.write_text(text)
    with pytest.raises(RegistryUnreachable) as refused:
        ConfluentRegistry(RegistrySettings(url="https://r:1", ca_location=file))
    assert refused.value.place == str(file)


def test_the_settings_say_whether_there_is_a_registry(server: Server) -> None:
    assert configured_registry(Settings()) is None
    found = configured_registry(Settings(registry=RegistrySettings(url=server.url)))
    assert found is not None
    with found:
        assert found.address == server.url


SECRET = 'sen"tinel\\'


def _secured() -> KafkaSettings:
    return KafkaSettings(
        bootstrap_servers="b:1",
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="ada",
        sasl_password=SecretStr(SECRET),
        ssl_ca_location=Path("/ca.pem"),
        extra={"client.id": "shop"},
        extra_jvm={"max.poll.records": "20000"},
    )


def test_each_client_gets_its_spelling() -> None:
    shared = {"bootstrap.servers": "b:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512",
              "client.id": "shop"}  # fmt: skip
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    assert _secured().librdkafka() == shared | {
        "sasl.username": "ada", "sasl.password": SECRET, "ssl.ca.location": "/ca.pem",
    }  # fmt: skip
    assert _secured().jvm() == shared | {
        "sasl.jaas.config": f'{module} required username="ada" password="sen\\"tinel\\\\";',
        "ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem", "max.poll.records": "20000",
    }  # fmt: skip
    producer = KafkaSettings(extra_librdkafka={"partitioner": "consistent"}).librdkafka_producer()
    assert producer["partitioner"] == "murmur2_random"  # places keys as Java does


def test_settings_come_from_the_environment_unless_the_program_says_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FACTFOLD_KAFKA__BOOTSTRAP_SERVERS", "one:1,two:2")
    monkeypatch.setenv("FACTFOLD_KAFKA__EXTRA", '{"client.id": "shop"}')
    assert Settings().kafka.librdkafka()["bootstrap.servers"] == "one:1,two:2"
    assert Settings().kafka.extra == {"client.id": "shop"}
    assert Settings.for_broker("two:2").kafka.bootstrap_servers == "two:2"


def test_a_password_is_masked_wherever_it_is_shown() -> None:
    settings = Settings(kafka=_secured())
    shown = f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()}"
    assert "tinel" not in shown
    assert SECRET not in repr(KafkaSettings(extra={"sasl.password": SECRET}, extra_jvm={"ssl.keystore.key": SECRET}))


def test_a_misspelt_setting_is_refused() -> None:
    with pytest.raises(ValidationError):
        KafkaSettings.model_validate({"bootstrap_server": "b:1"})


def test_the_registrys_client_gets_its_spelling() -> None:
    registry = RegistrySettings(url="https://r:1/", user="ada", password=SecretStr(SECRET), ca_location=Path("/ca.pem"))
    assert registry.confluent() == {
        "url": "https://r:1",
        "basic.auth.user.info": f"ada:{SECRET}",
        "ssl.ca.location": "/ca.pem",
        "timeout": 5.0,
        "max.retries": 2,
        "retries.wait.ms": 100,
    }
    assert "ada" not in RegistrySettings(url="http://r:1").confluent()


def test_there_is_no_registry_unless_the_environment_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().registry is None
    monkeypatch.setenv("FACTFOLD_REGISTRY__URL", "http://r:1")
    monkeypatch.setenv("FACTFOLD_REGISTRY__USER", "ada")
    monkeypatch.setenv("FACTFOLD_REGISTRY__PASSWORD", SECRET)
    monkeypatch.setenv("FACTFOLD_REGISTRY__COMPATIBILITY", '{"order": "BACKWARD"}')
    found = Settings().registry
    assert found is not None
    assert (found.url, found.compatibility) == ("http://r:1", {"order": "BACKWARD"})
    assert SECRET not in f"{found!r} {found} {found.model_dump_json()} {Settings()!r}"


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "r:1"},
        {"url": "mock://r"},
        {"url": "http://ada:sentinel@r:1"},
        {"url": "http://r:1", "user": "ada"},
        {"url": "http://r:1", "password": "sentinel"},
        {"url": "http://r:1", "user": "a:da", "password": "sentinel"},
        {"url": "http://r:1", "compatibility": {"order": "SIDEWAYS"}},
    ],
)
def test_a_registry_that_cannot_be_asked_is_refused_without_its_password(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as refused:
        RegistrySettings.model_validate(wrong)
    assert "sentinel" not in str(refused.value)


EVERY = {
    **{f"FACTFOLD_KAFKA__{name.upper()}": field for name, field in KafkaSettings.model_fields.items()},
    **{f"FACTFOLD_REGISTRY__{name.upper()}": field for name, field in RegistrySettings.model_fields.items()},
}


@each_row("name", [*EVERY, "FACTFOLD_KAFKA", "FACTFOLD_REGISTRY", "FACTFOLD_KAFKA__PASSWORD"])
@each_row("text", ["sentinel", "http://ada:sentinel@r:1", '{"a": ["sentinel"]}', '{"sentinel'])
def test_no_setting_is_shown_when_it_is_wrong(name: str, text: str) -> None:
    refused = None
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(name, text)
        try:
            Settings()
        except InvalidSettings as error:
            refused = error
    if refused is not None:  # a user's name, a host and a file may be any text
        assert "FACTFOLD_" in refused.message
        assert "\n" not in refused.message
        assert "sentinel" not in "".join(traceback.format_exception(refused))


@pytest.mark.parametrize(
    ("name", "cause", "remedy"),
    [
        ("FACTFOLD_KAFKA__PASSWORD", "there is no setting FACTFOLD_KAFKA__PASSWORD", "FACTFOLD_KAFKA__SASL_PASSWORD"),
        ("FACTFOLD_REGISTRY__TOKEN", "there is no setting FACTFOLD_REGISTRY__TOKEN", "FACTFOLD_REGISTRY__"),
        (
            "FACTFOLD_KAFKA__SECURITY_PROTOCOL",
            "SECURITY_PROTOCOL: Input should be",
            "correct the value",
        ),
        ("FACTFOLD_KAFKA__EXTRA", "is no JSON", "FACTFOLD_KAFKA__BOOTSTRAP_SERVERS"),
    ],
)
def test_a_wrong_setting_is_named_with_what_to_do(monkeypatch, name, cause, remedy):
    monkeypatch.setenv(name, "x")
    with raises(InvalidSettings, match=cause, remedy=remedy):
        Settings()


def test_topics_in_avro_without_a_registry_in_the_settings_have_a_remedy() -> None:
    with pytest.raises(RegistryUnreachable) as refused:
        registered_for(Settings(), ["shop.items"])
    assert ("FACTFOLD_REGISTRY__URL" in refused.value.remedy, refused.value.place) == (True, "shop.items")
