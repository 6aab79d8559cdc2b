"""Secrets in every place of a declaration that takes one: refused in clear, and never shown."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest

from cdc.connect.status import ConnectorInfo, TaskInfo
from cdc.connectors.base import keys_of
from cdc.connectors.encodings import ApicurioAvro
from cdc.errors import InvalidConnector
from cdc.operating.planning import MASK, differences, masked
from cdc.transforms import Custom, Flatten, InsertField, InsertHeader
from eventstore.errors import InvalidIdentifier
from tests.errors import raises
from tests.rows import each_row
from tests.unit.cdc.declared import DEBEZIUM, MIRRORS, REFERENCE, custom, mirror, postgres

SECRET = "s3nt1nel"
LISTS = sorted(file.name for file in files("cdc.connectors").iterdir() if file.name.endswith("_keys.tsv"))
LISTED = sorted({key for name in LISTS for key, kind in keys_of(name).items() if kind == "PASSWORD"})
OF_CLIENTS = [key for key in LISTED if key.startswith(("ssl.", "sasl."))]
PREFIXES = ("", "producer.override.", "source.cluster.", "target.admin.", "schema.history.internal.consumer.")
OF_CONVERTERS = ("basic.auth.user.info", "schema.registry.basic.auth.user.info", "bearer.auth.token", "x.keystore.key")


NO_REFERENCES = ("", " ", "${jndi:ldap://host/a}", "${JNDI:dns://host}", f"{REFERENCE}x")


def told(error: BaseException) -> str:
    """All that an error can show: its text, its fields, its traceback with every cause."""
    return "".join(traceback.format_exception(error)) + str(vars(error))


def secrets_of(declared: Any) -> Iterator[str]:
    """Every key of type PASSWORD that a connector reads and has no field for, and those behind what it passes on."""
    listed = keys_of(declared.CATALOGUE).items()
    yield from (key for key, kind in listed if kind == "PASSWORD" and key not in declared._owned().keys)
    passed_on = [key.removesuffix("*") for key, _ in listed if key.endswith(("producer.*", "consumer.*", "cluster.*"))]
    yield from (f"{prefix}{key}" for prefix in ("producer.override.", *passed_on) for key in OF_CLIENTS)
    yield from (f"{part}.converter.{key}" for part in ("key", "value") for key in OF_CONVERTERS)


def test_the_lists_have_secrets_of_every_kind() -> None:
    assert {"database.password", "ssl.keystore.key", "sasl.jaas.config"} <= set(LISTED)
    assert len(OF_CLIENTS) > 5


@each_row("key", [*LISTED, *OF_CONVERTERS])
def test_what_a_list_calls_a_password_is_masked_behind_any_prefix(key: str) -> None:
    for prefix in PREFIXES:
        assert masked(f"{prefix}{key}", SECRET) == MASK
        assert masked(f"{prefix}{key}", REFERENCE) == REFERENCE


@pytest.mark.parametrize("key", ["ssl.keystore.location", "database.sslmode", "message.key.columns", "topics"])
def test_what_is_no_secret_is_shown(key: str) -> None:
    assert masked(key, "shop") == "shop"


def test_a_login_in_any_url_is_masked() -> None:
    assert masked("key.converter.schema.registry.url", f"http://ann:{SECRET}@registry") == MASK
    assert masked("key.converter.schema.registry.url", "http://registry") == "http://registry"


@each_row("field", ["extra", "unchecked"])
@each_row("declare", [*DEBEZIUM, custom, *MIRRORS])
def test_a_secret_among_further_settings_takes_a_reference_unless_asked_for(declare: Any, field: str) -> None:
    for key in secrets_of(declare()):
        assert declare(**{field: {key: REFERENCE}}).config()[key] == REFERENCE
        with raises(InvalidConnector, code="literal-secret") as refused:
            declare(**{field: {key: SECRET}})
        assert (refused.value.place, "allow_literal_secrets" in refused.value.remedy) == (key, True)
        assert SECRET not in told(refused.value)
        for no_reference in NO_REFERENCES:
            with raises(InvalidConnector, code="literal-secret"):
                declare(**{field: {key: no_reference}})
        allowed = declare(**{field: {key: SECRET}}, allow_literal_secrets=True)
        assert allowed.config()[key] == SECRET
        assert SECRET not in repr(allowed) + repr(differences({}, allowed.config()))


@each_row("text", [*NO_REFERENCES, SECRET])
@each_row("declare", DEBEZIUM)
def test_a_password_that_is_no_reference_is_refused(declare: Any, text: str) -> None:
    with raises(InvalidConnector, code="literal-secret") as refused:
        declare(password=text)
    assert (SECRET in told(refused.value), "factfold cdc prepare" in refused.value.remedy) == (False, True)


@each_row(
    "host",
    [
        "",
        "db/x",
        f"ann:{SECRET}@db",
        f"db?password={SECRET}",
        "db:1",
        "db,x",
        "a b",
        "db\n",
        "${jndi:dns:x}",
        "::1",
        "[::1]/x",
    ],
)
@each_row("declare", DEBEZIUM)
def test_a_host_that_is_more_than_a_host_is_refused_unseen(declare: Any, host: str) -> None:
    with pytest.raises(InvalidIdentifier) as refused:
        declare(host=host)
    assert SECRET not in told(refused.value)


@pytest.mark.parametrize("host", ["db", "db-1.shop_eu.svc", "10.0.0.1", "[::1]", "[fe80::1%eth0]", "${env:DB_HOST}"])
def test_a_host_is_a_name_an_address_or_a_reference(host: str) -> None:
    assert postgres(host=host).config()["database.hostname"] == host


@pytest.mark.parametrize("field", ["extra", "unchecked"])
def test_a_login_in_a_url_among_further_settings_is_refused(field: str) -> None:
    with raises(InvalidConnector, code="literal-secret") as refused:
        postgres(**{field: {"notification.http.url": f"https://ann:{SECRET}@hooks"}})

    assert SECRET not in told(refused.value)


@pytest.mark.parametrize("url", [f"http://ann:{SECRET}@registry", f"https://{SECRET}@registry/apis"])
def test_the_registry_s_url_has_no_login(url: str) -> None:
    with raises(InvalidConnector, code="literal-secret") as refused:
        ApicurioAvro(registry_url=url)

    assert refused.value.place == "registry_url"
    assert SECRET not in told(refused.value)
    key = "value.converter.apicurio.registry.auth.password"
    assert postgres(encoding=ApicurioAvro(registry_url="http://registry"), extra={key: REFERENCE}).config()[key]


@pytest.mark.parametrize("key", ["api.key", "ssl.keystore.key", "basic.auth.user.info", "cipher.private.pem"])
def test_a_literal_secret_of_a_transform_is_refused_without_a_remedy_that_is_none(key: str) -> None:
    with raises(InvalidConnector, code="literal-secret") as refused:
        Custom(class_name="com.example.Seal", options={key: SECRET})

    assert refused.value.place == f"options.{key}"
    assert "allow_literal_secrets" not in refused.value.remedy
    assert SECRET not in told(refused.value)
    assert Custom(class_name="com.example.Seal", options={key: REFERENCE})


@pytest.mark.parametrize("declare", [postgres, mirror])
def test_the_values_of_transforms_are_not_shown(declare: Any) -> None:
    declared = declare(
        transforms=(
            Custom(class_name="com.example.Seal", options={"cipher.keys": SECRET}),
            InsertHeader(header="origin", value=SECRET),
            InsertField(field="origin", value=SECRET),
            Flatten(name="flat"),
        )
    )

    shown = repr(declared)
    assert SECRET not in shown + str(declared)
    assert all(word in shown for word in ("com.example.Seal", "cipher.keys", "origin", "flat"))


def test_what_connect_says_of_configurations_is_not_shown() -> None:
    config = {"connector.class": "x", "header.password": SECRET}

    assert SECRET not in repr(ConnectorInfo("shop", "source", config, (0,))) + repr(TaskInfo(0, config))
