"""`factfold.toml`: the same settings as the environment's, which wins; mistakes are refused with their line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventstore import Settings
from eventstore.errors import InvalidSettings
from factfold.cli.entry import main
from factfold.settings_file import use_settings_file
from projections.connections import SparkSettings
from tests.commands import factfold

WHOLE = """\
store_url = "sqlite:///shop.db"
restarts = 3

[kafka]
bootstrap_servers = "broker:9092"
extra = { "client.id" = "shop" }

[registry]
url = "https://registry:8081"
timeout_seconds = 2.5
auto_register = false

[registry.compatibility]
order = "BACKWARD"

[spark]
master = "local[2]"
config = { "spark.executor.memory" = "4g" }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder, and an environment without settings; a command that is run here sets variables."""
    monkeypatch.chdir(tmp_path)
    for name in _settings():
        monkeypatch.delenv(name)
    yield tmp_path
    for name in _settings():
        del os.environ[name]


def _settings() -> list[str]:
    return [name for name in os.environ if name.upper().startswith("FACTFOLD_")]


def used(text: str, **environment: str) -> dict[str, str]:
    """The environment after the file was used."""
    Path("factfold.toml").write_text(text, "utf-8")
    use_settings_file(environment)
    return environment


def refused(text: str) -> tuple[str, str, str | None]:
    with pytest.raises(InvalidSettings) as error:
        used(text)
    return error.value.message, error.value.remedy, error.value.place


def test_every_setting_becomes_its_variable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = used(WHOLE)
    assert (variables["FACTFOLD_STORE_URL"], variables["FACTFOLD_RESTARTS"]) == ("sqlite:///shop.db", "3")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    settings, spark = Settings(), SparkSettings()
    assert settings.kafka.bootstrap_servers == "broker:9092"
    assert settings.kafka.extra == {"client.id": "shop"}
    assert settings.registry is not None
    assert (settings.registry.timeout_seconds, settings.registry.auto_register) == (2.5, False)
    assert settings.registry.compatibility == {"order": "BACKWARD"}
    assert (spark.master, spark.config) == ("local[2]", {"spark.executor.memory": "4g"})


@pytest.mark.parametrize(
    "given",
    [
        {"FACTFOLD_KAFKA__BOOTSTRAP_SERVERS": "other:9092"},
        {"factfold_kafka__bootstrap_servers": "other:9092"},
        {"FACTFOLD_KAFKA": '{"bootstrap_servers": "other:9092"}'},
    ],
    ids=["its variable", "in lower case", "within the JSON of its table"],
)
def test_the_environment_wins(folder: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str]) -> None:
    for name, value in used('[kafka]\nbootstrap_servers = "broker:9092"', **given).items():
        monkeypatch.setenv(name, value)
    assert Settings().kafka.bootstrap_servers == "other:9092"


def test_without_a_file_nothing_changes(folder: Path) -> None:
    environment = {"PATH": "/bin"}
    use_settings_file(environment)
    assert environment == {"PATH": "/bin"}


def test_a_variable_names_another_file(folder: Path) -> None:
    (folder / "other.toml").write_text('archive = "/lake"')
    environment = {"FACTFOLD_SETTINGS": "other.toml"}
    use_settings_file(environment)
    assert environment["FACTFOLD_ARCHIVE"] == "/lake"


def test_a_named_file_that_is_missing_is_refused(folder: Path) -> None:
    with pytest.raises(InvalidSettings, match=r"the settings file 'other.toml' cannot be read: No such file"):
        use_settings_file({"FACTFOLD_SETTINGS": "other.toml"})


@pytest.mark.parametrize(
    ("text", "line", "message", "remedy"),
    [
        ('# one\nviws_url = "x"', 2, "there is no setting viws_url", "did you mean views_url?"),
        ('[kafka]\n\nbootstrap_server = "x"', 3, "there is no setting kafka.bootstrap_server",
         "did you mean bootstrap_servers?"),
        ('a = 1\n[kafak]\nx = "y"', 1, "there is no setting a", None),
        ('[kafak]\nx = "y"', 1, "there is no setting kafak", "did you mean [kafka]?"),
        ('kafka.acks = "all"', 1, "there is no setting kafka.acks", None),
        ('kafka = "broker"', 1, "there is no setting kafka", "did you mean [kafka]?"),
        *(
            (text, line, f"the setting {name} is a secret, which does not belong in a file",
             f"set FACTFOLD_{variable} instead")
            for text, line, name, variable in (
                ('[kafka]\nsasl_password = "hush"', 2, "kafka.sasl_password", "KAFKA__SASL_PASSWORD"),
                ('[registry]\nurl = "https://r"\npassword = "hush"', 3, "registry.password", "REGISTRY__PASSWORD"),
                ('master_keys = "k:aHVzaA=="', 1, "master_keys", "MASTER_KEYS"),
            )
        ),
        ("restarts = [3]", 1, "the setting restarts is a list", "write one text, number or boolean"),
        ("[store_url]\na = 1", 1, "the setting store_url is a dict", "write one text, number or boolean"),
        ("[spark]\nconfig = { a = 1 }", 2, "the setting spark.config is a dict", "write a table of texts"),
    ],
)  # fmt: skip
def test_a_mistake_is_refused_with_its_line(folder, text, line, message, remedy):
    said = refused(text)
    assert (said[0], said[2]) == (message, f"factfold.toml, line {line}")
    assert remedy is None or said[1] == remedy
    assert "hush" not in " ".join(map(str, said))


def test_what_is_not_toml_is_refused_with_its_line(folder: Path) -> None:
    message = refused("restarts = 3\nviews_url\nsource_url = 1")[0]
    assert message == "factfold.toml is not TOML: Expected '=' after a key in a key/value pair (at line 2, column 10)"


def test_a_command_takes_its_settings_from_the_file(folder: Path) -> None:
    from eventstore import SqlEventStore

    with SqlEventStore("sqlite:///shop.db") as store:
        store.create_tables()
    (folder / "factfold.toml").write_text('store_url = "sqlite:///shop.db"')
    ran = factfold("store", "status", "--json")
    assert ran.exit_code == 0, ran.output


def test_a_command_shows_what_is_wrong_with_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "factfold.toml").write_text('viws_url = "x"')
    monkeypatch.setattr(sys, "argv", ["factfold", "store", "status"])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err.splitlines()[0] == "error: there is no setting viws_url"
