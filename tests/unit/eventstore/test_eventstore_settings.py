"""One settings object speaks to librdkafka and to the JVM, and keeps its secrets."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from eventstore.errors import InvalidSettings
from eventstore.settings import KafkaSettings, RegistrySettings, Settings
from tests.rows import each_row

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


def test_librdkafka_gets_its_spelling() -> None:
    assert _secured().librdkafka() == {
        "bootstrap.servers": "b:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ada",
        "sasl.password": SECRET,
        "ssl.ca.location": "/ca.pem",
        "client.id": "shop",
    }


def test_the_jvm_gets_its_spelling() -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    assert _secured().jvm() == {
        "bootstrap.servers": "b:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{module} required username="ada" password="sen\\"tinel\\\\";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
        "client.id": "shop",
        "max.poll.records": "20000",
    }


def test_python_producers_place_keys_as_java_does() -> None:
    producer = KafkaSettings(extra_librdkafka={"partitioner": "consistent"}).librdkafka_producer()
    assert producer["partitioner"] == "murmur2_random"


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FACTFOLD_KAFKA__BOOTSTRAP_SERVERS", "one:1,two:2")
    monkeypatch.setenv("FACTFOLD_KAFKA__EXTRA", '{"client.id": "shop"}')
    assert Settings().kafka.librdkafka()["bootstrap.servers"] == "one:1,two:2"
    assert Settings().kafka.extra == {"client.id": "shop"}


def test_what_the_program_says_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FACTFOLD_KAFKA__BOOTSTRAP_SERVERS", "one:1")
    assert Settings.for_broker("two:2").kafka.bootstrap_servers == "two:2"


def test_a_password_is_masked_wherever_it_is_shown() -> None:
    settings = Settings(kafka=_secured())
    shown = f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()}"
    assert "tinel" not in shown


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
def test_a_wrong_setting_is_named_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, name: str, cause: str, remedy: str
) -> None:
    monkeypatch.setenv(name, "x")
    with pytest.raises(InvalidSettings, match=cause) as refused:
        Settings()
    assert remedy in refused.value.remedy


def test_settings_that_kafka_s_clients_know_are_not_shown() -> None:
    assert SECRET not in repr(KafkaSettings(extra={"sasl.password": SECRET}, extra_jvm={"ssl.keystore.key": SECRET}))
