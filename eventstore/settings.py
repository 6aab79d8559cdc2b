"""One settings object, from the environment, in both spellings Kafka has: librdkafka's and the JVM's.

    FACTFOLD_KAFKA__BOOTSTRAP_SERVERS=broker-1:9092,broker-2:9092
    FACTFOLD_KAFKA__SECURITY_PROTOCOL=SASL_SSL
    FACTFOLD_KAFKA__SASL_MECHANISM=SCRAM-SHA-512
    FACTFOLD_KAFKA__SASL_USERNAME=orders
    FACTFOLD_KAFKA__SASL_PASSWORD=…
    FACTFOLD_KAFKA__EXTRA='{"client.id": "orders"}'

What the program gives wins over variables; passwords are masked everywhere but in the two spellings.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]

# librdkafka's own default partitioner is CRC32; a foreign-key join by Kafka Streams over topics written both
# ways lost three quarters of its matches.
PARTITIONER: Final = "murmur2_random"

_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}


class KafkaSettings(BaseModel):
    """How to reach Kafka; `extra` holds settings under names both clients share."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bootstrap_servers: str = "localhost:9092"
    security_protocol: Protocol = "PLAINTEXT"
    sasl_mechanism: Mechanism | None = None
    sasl_username: str | None = None
    sasl_password: SecretStr | None = None
    ssl_ca_location: Path | None = None
    ssl_certificate_location: Path | None = None
    ssl_key_location: Path | None = None
    ssl_key_password: SecretStr | None = None
    extra: dict[str, str] = Field(default_factory=dict)
    extra_librdkafka: dict[str, str] = Field(default_factory=dict)
    extra_jvm: dict[str, str] = Field(default_factory=dict)

    def librdkafka(self) -> dict[str, str]:
        """Return the settings as confluent_kafka spells them, without a producer's partitioner."""
        spelled = {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": self.security_protocol,
            "sasl.mechanism": self.sasl_mechanism,
            "sasl.username": self.sasl_username,
            "sasl.password": _clear(self.sasl_password),
            "ssl.ca.location": _text(self.ssl_ca_location),
            "ssl.certificate.location": _text(self.ssl_certificate_location),
            "ssl.key.location": _text(self.ssl_key_location),
            "ssl.key.password": _clear(self.ssl_key_password),
        }
        return _given(spelled) | self.extra | self.extra_librdkafka

    def librdkafka_producer(self) -> dict[str, str]:
        """Return the settings of a Python producer, which places keys as the Java client does."""
        return {**self.librdkafka(), "partitioner": PARTITIONER}

    def jvm(self) -> dict[str, str]:
        """Return the settings as Kafka's Java clients spell them; certificates as PEM files."""
        spelled = {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": self.security_protocol,
            "sasl.mechanism": self.sasl_mechanism,
            "sasl.jaas.config": self._jaas(),
            "ssl.truststore.type": "PEM" if self.ssl_ca_location else None,
            "ssl.truststore.location": _text(self.ssl_ca_location),
            "ssl.keystore.type": "PEM" if self.ssl_key_location else None,
            "ssl.keystore.location": _text(self.ssl_key_location),
            "ssl.key.password": _clear(self.ssl_key_password),
        }
        return _given(spelled) | self.extra | self.extra_jvm

    def _jaas(self) -> str | None:
        if self.sasl_mechanism is None:
            return None
        module = _LOGIN_MODULES[self.sasl_mechanism]
        if self.sasl_username is None:
            return f"{module} required;"
        username, password = _quoted(self.sasl_username), _quoted(_clear(self.sasl_password) or "")
        return f"{module} required username={username} password={password};"


class Settings(BaseSettings):
    """Everything a service of Factfold is told from outside."""

    model_config = SettingsConfigDict(env_prefix="FACTFOLD_", env_nested_delimiter="__", frozen=True, extra="forbid")

    kafka: KafkaSettings = Field(default_factory=KafkaSettings)

    @classmethod
    def for_broker(cls, bootstrap_servers: str) -> Settings:
        """Return settings for a broker without security, as the local stack's."""
        return cls(kafka=KafkaSettings(bootstrap_servers=bootstrap_servers))


def _given(spelled: dict[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in spelled.items() if value is not None}


def _clear(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
