"""One settings object speaks to librdkafka and to the JVM, and keeps its secrets."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from eventstore.settings import KafkaSettings, Settings

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
