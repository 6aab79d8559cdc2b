"""Secrets files that Java understands, and rotations that are refused before anything is changed."""

from __future__ import annotations

import errno
import stat
import traceback
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import create_engine

from cdc import PostgresSource, rotate_password, write_secrets
from cdc.connect.status import ConfigProblem, ConnectorStatus
from cdc.connectors.base import keys_of
from cdc.connectors.encodings import ApicurioAvro
from cdc.connectors.secrets import file_of, is_reference, replace_secrets, store_secret, stored_secret
from cdc.errors import ConnectRejected, InvalidConnector
from cdc.operating.planning import MASK, differences, masked
from cdc.transforms import Custom, Flatten, InsertField, InsertHeader
from eventstore.errors import InvalidIdentifier
from tests.errors import raises
from tests.rows import each_row
from tests.unit.cdc.declared import DEBEZIUM, MIRRORS, REFERENCE, custom, mirror, postgres

# Asked for anything, it would raise SourceNotReady.
NOBODY = create_engine("postgresql+psycopg://nobody@127.0.0.1:9/nowhere")


class Cluster:
    """A worker that runs connectors, and has something to say about their configurations."""

    def __init__(self, *running: Any, problem: str = "") -> None:
        self._running = {name: config for name, config in running}
        self._problems = (ConfigProblem("database.hostname", problem),) if problem else ()

    def overview(self) -> dict[str, tuple[dict[str, str], ConnectorStatus]]:
        return {name: ({"name": name, **config}, status(name)) for name, config in self._running.items()}

    def validate(self, config: dict[str, str]) -> tuple[ConfigProblem, ...]:
        return self._problems


def status(name: str) -> ConnectorStatus:
    return ConnectorStatus.of(
        {"name": name, "connector": {"state": "RUNNING", "worker_id": "here"}, "tasks": [], "type": "source"}
    )


def runs(connector: PostgresSource, **changes: str) -> tuple[str, dict[str, str]]:
    changed = {key.replace("_", "."): value for key, value in changes.items()}
    return connector.name, {**connector.config(), **changed}


@pytest.fixture
def shop(tmp_path: Path) -> PostgresSource:
    references = write_secrets(tmp_path, "shop", values={"password": "old"})
    return postgres(password=references["password"], tables=("public.customers",))


@pytest.mark.parametrize(
    "changes",
    [
        {"database_user": "other"},
        {"database_hostname": "elsewhere"},
        {"database_port": "5433"},
        {"connector_class": "io.debezium.connector.mysql.MySqlConnector"},
    ],
)
def test_another_role_s_connector_with_the_same_secret_is_named(shop: PostgresSource, changes: dict[str, str]) -> None:
    stranger = runs(replace(shop, name="stranger"), **changes)

    with raises(InvalidConnector, match="'stranger' reads the same secret", remedy="reference of its own"):
        rotate_password(Cluster(runs(shop), stranger), shop, source=NOBODY)  # type: ignore[arg-type]


def test_a_sink_with_the_same_secret_is_named(shop: PostgresSource) -> None:
    sink = ("sink", {"connector.class": "JdbcSink", "connection.password": shop.config()["database.password"]})

    with pytest.raises(InvalidConnector, match="'sink' reads the same secret"):
        rotate_password(Cluster(runs(shop), sink), shop, source=NOBODY)  # type: ignore[arg-type]


def test_a_connector_of_the_role_that_carries_the_password_in_clear_is_named(shop: PostgresSource) -> None:
    literal = runs(replace(shop, name="literal"), database_password="sentinel")

    with pytest.raises(InvalidConnector, match="'literal' has its password in clear") as refused:
        rotate_password(Cluster(runs(shop), literal), shop, source=NOBODY)  # type: ignore[arg-type]

    assert "sentinel" not in str(refused.value)


@pytest.mark.parametrize("key", ["database_user", "database_hostname", "database_port", "database_password"])
def test_a_connector_that_runs_with_another_login_than_is_declared_is_named(shop: PostgresSource, key: str) -> None:
    with pytest.raises(InvalidConnector, match=f"'shop' runs with another {key.replace('_', '.')}"):
        rotate_password(Cluster(runs(shop, **{key: "7"})), shop, source=NOBODY)  # type: ignore[arg-type]


@pytest.mark.parametrize("in_cluster", [True, False])
def test_a_function_that_writes_one_secret_does_not_do_for_two(shop, tmp_path, *, in_cluster):
    two = write_secrets(tmp_path, "two", values={"password": "old"})["password"]
    other = replace(shop, name="other", password=two)
    cluster = Cluster(runs(shop), *([runs(other)] if in_cluster else []))
    written: list[Any] = []

    with pytest.raises(InvalidConnector, match="behind 2 references, and `write` writes one"):
        rotate_password(cluster, shop, source=NOBODY, others=[other], write=written.append)  # type: ignore[arg-type]

    assert written == []


def test_what_the_worker_cannot_use_anyway_is_left_as_it_is(shop: PostgresSource, tmp_path: Path) -> None:
    cluster = Cluster(runs(shop), problem="The connection attempt failed.")

    with pytest.raises(ConnectRejected, match="nothing was changed: The connection attempt failed"):
        rotate_password(cluster, shop, source=NOBODY)  # type: ignore[arg-type]

    assert (tmp_path / "shop.properties").read_text() == "password=old\n"


def test_a_secret_is_written_for_its_owner_alone_and_comes_back_as_a_reference(tmp_path: Path) -> None:
    references = write_secrets(tmp_path, "shop", values={"password": SecretStr("s3cret")})
    path = tmp_path / "shop.properties"

    assert references == {"password": f"${{file:{path}:password}}"}
    assert is_reference(references["password"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() == "password=s3cret\n"


def test_characters_with_a_meaning_in_properties_files_are_escaped(tmp_path: Path) -> None:
    write_secrets(tmp_path, "shop", values={"password": " a=b:c#d!\\\n\tü😀"})

    assert (tmp_path / "shop.properties").read_text() == (
        "password=\\ a\\=b\\:c\\#d\\!\\\\\\n\\t\\u00fc\\ud83d\\ude00\n"
    )


def test_writing_again_replaces_the_whole_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    write_secrets(tmp_path, "shop", values={"old": "1"})
    write_secrets(tmp_path, "shop", values={"new": "2"})

    assert (tmp_path / "shop.properties").read_text() == "new=2\n"
    assert [path.name for path in tmp_path.iterdir()] == ["shop.properties"]


@pytest.mark.parametrize("name", ["", "../shop", "a b", "a:b"])
def test_names_that_would_leave_the_folder_or_break_the_reference_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidConnector):
        write_secrets(tmp_path, name, values={"password": "x"})


def test_a_folder_that_would_break_the_reference_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConnector, match="colon or a brace"):
        write_secrets(tmp_path / "a:b", "shop", values={"password": "x"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${file:/a/b.properties:key}", True),
        ("${env:PASSWORD}", True),
        ("secret", False),
        ("${file:/a:key}secret", False),
        ("$file", False),
        ("", False),
        ("${jndi:ldap://host/a}", False),
        ("${JnDi:dns:host}", False),
        ("${sys:user.home}", False),
        ("${javas:key}", True),
    ],
)
def test_only_a_whole_reference_counts_as_one(text: str, *, expected: bool) -> None:
    assert is_reference(text) is expected


@pytest.mark.parametrize(
    ("text", "new", "written"),
    [
        ("# ours\nuser=ann\n password : old\\\n  er\nother=1\n", "n=w \\1",
         "# ours\nuser=ann\npassword=n\\=w\\ \\\\1\nother=1\n"),
        ("user=ann\n", "new", "user=ann\npassword=new\n"),  # the file lacks it
        ("user=ann", "new", "user=ann\npassword=new\n"),  # its last line has no end
    ],
)  # fmt: skip
def test_one_value_of_a_file_is_replaced_or_added_and_the_rest_stays(tmp_path, text, new, written):
    path = tmp_path / "shop.properties"
    path.write_text(text)
    path.chmod(0o640)
    replace_secrets([f"${{file:{path}:password}}"], SecretStr(new))
    assert path.read_text() == written
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [one.name for one in tmp_path.iterdir()] == ["shop.properties"]


def test_one_value_is_put_behind_several_references(tmp_path: Path) -> None:
    here = [write_secrets(tmp_path, name, values={"password": "old", "user": "ann"}) for name in ("shop", "other")]

    replace_secrets([here[0]["password"], here[1]["password"], here[1]["user"]], "new")

    assert (tmp_path / "shop.properties").read_text() == "password=new\nuser=ann\n"
    assert (tmp_path / "other.properties").read_text() == "password=new\nuser=new\n"
    assert len(list(tmp_path.iterdir())) == 2


def test_no_file_is_replaced_where_one_of_them_may_not_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = [write_secrets(tmp_path, name, values={"password": "old"})["password"] for name in ("shop", "other")]
    owners = iter([None, PermissionError(errno.EPERM, "Operation not permitted")])

    def owned(*_: object) -> None:
        if refused := next(owners):
            raise refused

    monkeypatch.setattr("os.fchown", owned)
    with pytest.raises(InvalidConnector, match="may not replace the secrets file") as failure:
        replace_secrets(here, "sentinel")

    assert (failure.value.place, "sentinel" in str(failure.value)) == (str(tmp_path / "other.properties"), False)
    assert {path.read_text() for path in tmp_path.iterdir()} == {"password=old\n"}
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("reference", ["${env:PASSWORD}", "${file:/nowhere/shop.properties:password}", "sentinel"])
def test_a_value_that_is_in_no_file_here_is_not_replaced(reference: str) -> None:
    with pytest.raises(InvalidConnector, match="no file on this machine") as refused:
        replace_secrets([reference], "sentinel too")
    assert "sentinel" not in str(refused.value)


@pytest.mark.parametrize("secret", ["s3cret", " a=b:c#d!\\\n\tü😀", "x\\u0041", ""])
def test_a_stored_secret_is_read_as_it_was_given(tmp_path: Path, secret: str) -> None:
    path = tmp_path / "secrets" / "shop.properties"
    store_secret(path, "other", "1")
    store_secret(path, "password", SecretStr(secret))
    found = stored_secret(path, "password")
    assert found is not None
    assert found.get_secret_value() == secret
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_stored_secret_leaves_other_keys_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "shop.properties"
    store_secret(path, "one", "1")
    store_secret(path, "two", "2")
    store_secret(path, "one", "3")
    assert path.read_text() == "one=3\ntwo=2\n"


def test_a_missing_file_or_key_is_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "shop.properties"
    assert stored_secret(path, "password") is None
    path.write_text("# password=old\nother=1\n")
    assert stored_secret(path, "password") is None


def test_a_reference_to_a_file_has_a_path_and_a_key_and_others_have_none() -> None:
    assert file_of("${file:/secrets/shop.properties:password}") == (Path("/secrets/shop.properties"), "password")
    assert file_of("${env:PASSWORD}") is None
    assert file_of("literal") is None


# ---- Secrets in every place of a declaration that takes one: refused in clear, and never shown


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
