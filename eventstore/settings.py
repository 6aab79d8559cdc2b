"""One settings object, from the environment, in both spellings Kafka has: librdkafka's and the JVM's.

    FACTFOLD_KAFKA__BOOTSTRAP_SERVERS=broker-1:9092,broker-2:9092
    FACTFOLD_KAFKA__SECURITY_PROTOCOL=SASL_SSL
    FACTFOLD_KAFKA__SASL_MECHANISM=SCRAM-SHA-512
    FACTFOLD_KAFKA__SASL_USERNAME=orders
    FACTFOLD_KAFKA__SASL_PASSWORD=…
    FACTFOLD_KAFKA__EXTRA='{"client.id": "orders"}'
    FACTFOLD_REGISTRY__URL=https://registry:8081
    FACTFOLD_REGISTRY__USER=orders
    FACTFOLD_REGISTRY__PASSWORD=…
    FACTFOLD_REGISTRY__COMPATIBILITY='{"order": "BACKWARD"}'

What the program gives wins over variables; passwords are masked everywhere but in the clients' spellings. A setting
that is unknown or has a wrong value raises InvalidSettings, which names it and never shows what it holds.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from eventstore.errors import InvalidSettings

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
Compatibility = Literal[
    "NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"
]

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
    """How to reach Kafka.

    Attributes:
        bootstrap_servers: Brokers, as `host:port`, separated by commas.
        extra: Further settings of both clients, by the names that they share. They may be secret and are never shown.
        extra_librdkafka: Further settings of Python clients.
        extra_jvm: Further settings of Java clients.

    Examples:
        >>> settings = Settings(kafka=KafkaSettings(bootstrap_servers="broker:9092", security_protocol="SSL"))
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    bootstrap_servers: str = "localhost:9092"
    security_protocol: Protocol = "PLAINTEXT"
    sasl_mechanism: Mechanism | None = None
    sasl_username: str | None = None
    sasl_password: SecretStr | None = None
    ssl_ca_location: Path | None = None
    ssl_certificate_location: Path | None = None
    ssl_key_location: Path | None = None
    ssl_key_password: SecretStr | None = None
    extra: dict[str, str] = Field(default_factory=dict, repr=False)
    extra_librdkafka: dict[str, str] = Field(default_factory=dict, repr=False)
    extra_jvm: dict[str, str] = Field(default_factory=dict, repr=False)

    def librdkafka(self) -> dict[str, str]:
        """Return the settings by confluent_kafka's names, without a producer's partitioner."""
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
        """Return the settings of a Python producer, which partitions keys as the Java client does."""
        return {**self.librdkafka(), "partitioner": PARTITIONER}

    def jvm(self) -> dict[str, str]:
        """Return the settings by the names of Kafka's Java clients. Certificates are PEM files."""
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


class RegistrySettings(BaseModel):
    """How to reach a Confluent-compatible schema registry, and what it checks.

    Attributes:
        url: The registry's URL.
        user: The user of basic authentication, with `password`.
        ca_location: The file of certificate authorities to trust.
        timeout_seconds: The time for one request.
        auto_register: Register a new schema with its first event. If false, register it before.
        compatibility: The rule for the events of a category. Other categories have the registry's own.

    Examples:
        >>> settings = Settings(registry=RegistrySettings(url="https://registry:8081"))
        >>> store = SqlEventStore("sqlite:///shop.db", registry=configured_registry(settings))
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    url: str
    user: str | None = None
    password: SecretStr | None = None
    ca_location: Path | None = None
    timeout_seconds: float = Field(default=5.0, gt=0)
    auto_register: bool = True
    compatibility: dict[str, Compatibility] = Field(default_factory=dict)

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            # It is stored with every schema, and every reader of the schemas topic sees it.
            raise ValueError("http:// or https:// and a host, without a user: that is FACTFOLD_REGISTRY__USER")
        return url.rstrip("/")

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.user is None) != (self.password is None):
            raise ValueError("a user needs a password, and a password its user")
        if ":" in (self.user or ""):
            raise ValueError("a user's name has no colon in basic authentication")
        return self

    def confluent(self) -> dict[str, Any]:
        """Return the settings by the names of confluent_kafka's registry client."""
        spelled = {
            "url": self.url,
            "basic.auth.user.info": None if self.user is None else f"{self.user}:{_clear(self.password)}",
            "ssl.ca.location": _text(self.ca_location),
        }
        # An append waits for it once for each new schema: retry a short outage, and raise an error after it.
        patience = {"timeout": self.timeout_seconds, "max.retries": 2, "retries.wait.ms": 100}
        return {**_given(spelled), **patience}


class Settings(BaseSettings):
    """All settings of a service, from arguments or from variables such as FACTFOLD_KAFKA__BOOTSTRAP_SERVERS.

    Attributes:
        kafka: How to reach Kafka.
        registry: How to reach a schema registry. Without one, schema ids are fingerprints.

    Raises:
        InvalidSettings: A setting is unknown or wrong. The error names the first one.

    Examples:
        >>> Settings(kafka=KafkaSettings(bootstrap_servers="broker:9092"))
    """

    model_config = SettingsConfigDict(
        env_prefix="FACTFOLD_", env_nested_delimiter="__", frozen=True, extra="forbid", hide_input_in_errors=True
    )

    kafka: KafkaSettings = Field(default_factory=KafkaSettings)
    registry: RegistrySettings | None = None

    def __init__(self, **given: Any) -> None:
        try:
            super().__init__(**given)
        except ValidationError as error:
            # Pydantic's own error keeps the value, which may be a password.
            raise _invalid(error) from None
        except SettingsError:
            raise InvalidSettings(
                "a FACTFOLD_ variable that holds several settings is no JSON",
                remedy="write JSON, or one variable for each setting: FACTFOLD_KAFKA__BOOTSTRAP_SERVERS=…",
            ) from None

    @classmethod
    def for_broker(cls, bootstrap_servers: str) -> Settings:
        """Return settings for a broker without security, such as that of the local stack."""
        return cls(kafka={"bootstrap_servers": bootstrap_servers})


def _invalid(error: ValidationError) -> InvalidSettings:
    """Return what is wrong with one of the settings, by its variable's name: an unknown one first."""
    problems = error.errors(include_input=False, include_url=False, include_context=False)
    first = min(problems, key=lambda problem: problem["type"] != "extra_forbidden")
    path = [str(part).lower() for part in first["loc"]]
    name = _variable(path)
    if first["type"] != "extra_forbidden":
        remedy = "set it" if first["type"] == "missing" else "correct the value, which is not shown here"
        return InvalidSettings(f"{name}: {first['msg']}", remedy=remedy)
    known = [_variable([*path[:-1], field]) for field in _fields(path[:-1])]
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return InvalidSettings(
        f"there is no setting {name}", remedy=f"did you mean {close[0]}" if close else f"known are {', '.join(known)}"
    )


def _variable(path: list[str]) -> str:
    return "FACTFOLD_" + "__".join(path).upper()


def _fields(path: list[str]) -> list[str]:
    models: dict[str, type[BaseModel]] = {"kafka": KafkaSettings, "registry": RegistrySettings}
    return list((models[path[0]] if path else Settings).model_fields)


def _given(spelled: dict[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in spelled.items() if value is not None}


def _clear(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
