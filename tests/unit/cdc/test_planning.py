"""What would change is told setting by setting, and no secret with it."""

from __future__ import annotations

import pytest

from cdc.planning import MASK, SettingChange, differences, masked


def test_what_is_new_other_and_gone_is_told_by_key() -> None:
    running = {"a": "1", "b": "2", "c": "3"}
    assert differences(running, {"a": "1", "b": "5", "d": "4"}) == (
        SettingChange("b", "2", "5"),
        SettingChange("c", "3", None),
        SettingChange("d", None, "4"),
    )


@pytest.mark.parametrize(
    "key",
    [
        "database.password", "producer.override.sasl.jaas.config", "schema.registry.basic.auth.credentials.source",
        "mongodb.connection.string", "ssl.keystore.PASSWORD", "oauth.client.secret", "x.api.key", "access_token",
        "producer.override.ssl.keystore.key", "ssl.truststore.certificates", "key.converter.basic.auth.user.info",
    ],
)  # fmt: skip
def test_a_secret_that_differs_is_seen_to_and_not_what_it_is(key: str) -> None:
    (change,) = differences({key: "sentinel-old"}, {key: "sentinel-new"})
    assert change == SettingChange(key, MASK, MASK)


def test_a_reference_tells_no_secret_and_is_shown() -> None:
    reference = "${file:/secrets/shop.properties:password}"
    assert masked("database.password", reference) == reference
    assert masked("database.password", f"{reference} and more") == MASK
    assert masked("topic.prefix", "shop") == "shop"
