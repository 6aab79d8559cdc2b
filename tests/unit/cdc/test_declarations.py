"""Connectors declared in TOML: the same objects as in Python, and an address for every mistake."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from cdc import OutboxSource, PostgresSource, load_connectors
from cdc.connectors import declarations
from cdc.connectors.encodings import JsonWithSchemas
from cdc.errors import InvalidConnector
from cdc.transforms import Filter, Mask, TopicMatches
from eventstore.errors import InvalidIdentifier
from tests.errors import raises
from tests.rows import each_row
from tests.unit.cdc.declared import REFERENCE, checkpoint, custom, heartbeat, mariadb, mirror, mysql, outbox, postgres

LOGIN = f'host = "db"\nuser = "shop_cdc"\npassword = "{REFERENCE}"\ntopic_prefix = "shop"\n'
HISTORY = 'history_bootstrap_servers = "kafka:9092"\n'
POSTGRES = f'type = "postgres"\nname = "shop"\n{LOGIN}database = "shop"\ntables = ["public.items"]\n'
CLUSTERS = (
    'source_alias = "here"\ntarget_alias = "there"\n'
    'source_bootstrap_servers = "a:9092"\ntarget_bootstrap_servers = "b:9092"\n'
)


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """A function that writes tables of connectors into a file."""

    def write(*tables: str) -> Path:
        file = tmp_path / "connectors.toml"
        file.write_text("".join(f"[[connector]]\n{table}\n" for table in tables), encoding="utf-8")
        return file

    return write


def documented() -> list[str]:
    """The files of connectors that the documentation shows."""
    pages = sorted((Path(__file__).parents[3] / "docs").rglob("*.md"))
    found = [block for page in pages for block in re.findall(r"```toml\n(.*?)```", page.read_text("utf-8"), re.DOTALL)]
    return [block for block in found if "[[connector]]" in block]


def test_the_files_of_the_documentation_declare_both_connectors_of_a_service(tmp_path: Path) -> None:
    kinds = set()
    for number, text in enumerate(documented()):
        file = tmp_path / f"{number}.toml"
        file.write_text(text, "utf-8")
        kinds |= {type(connector) for connector in load_connectors(file)}
    assert kinds >= {PostgresSource, OutboxSource}


@pytest.mark.parametrize(
    ("table", "declared"),
    [
        (POSTGRES, postgres()),
        (f'type = "outbox"\n{LOGIN}database = "shop"\n', outbox()),
        (f'type = "mysql"\n{LOGIN}{HISTORY}tables = ["shop.items"]\n', mysql()),
        (f'type = "mariadb"\n{LOGIN}{HISTORY}tables = ["shop.items"]\n', mariadb()),
        (
            'type = "custom"\nname = "shop"\ntopic_prefix = "shop"\nclass_name = "com.example.Source"\n'
            'tables = ["a.b"]\n',
            custom(),
        ),
        (f"type = \"mirror-source\"\n{CLUSTERS}topics = ['shop\\..*']\n", mirror()),
        (f'type = "mirror-checkpoint"\n{CLUSTERS}groups = ["billing"]\n', checkpoint()),
        (f'type = "mirror-heartbeat"\n{CLUSTERS}', heartbeat()),
    ],
    ids=["postgres", "outbox", "mysql", "mariadb", "custom", "mirror", "checkpoint", "heartbeat"],
)
def test_a_file_says_what_python_says(written: Callable[..., Path], table: str, declared: object) -> None:
    named = table if "name =" in table else f'name = "shop"\n{table}'

    assert load_connectors(written(named)) == (declared,)


def test_every_type_of_the_file_is_a_declaration() -> None:
    kinds = (declarations._CONNECTORS, declarations._ENCODINGS, declarations._PREDICATES, declarations._TRANSFORMS)

    assert all(declarations._class_at(home) for homes in kinds for home in homes.values())


def test_connectors_come_in_their_order_and_from_text_paths_too(written: Callable[..., Path]) -> None:
    second = POSTGRES.replace('name = "shop"', 'name = "crm"')

    assert [connector.name for connector in load_connectors(str(written(POSTGRES, second)))] == ["shop", "crm"]


def test_encodings_transforms_and_further_settings_are_tables(written: Callable[..., Path]) -> None:
    file = written(
        POSTGRES
        + 'encoding = { type = "json-with-schemas", times = "adaptive" }\n'
        + '[connector.extra]\n"max.batch.size" = 100\n"skip.messages.without.change" = true\n'
        + '[[connector.transforms]]\ntype = "mask"\nfields = ["email"]\n'
        + '[[connector.transforms]]\ntype = "filter"\nwhen = { type = "topic-matches", pattern = "x" }\nnegate = true\n'
    )

    assert load_connectors(file) == (
        postgres(
            encoding=JsonWithSchemas(times="adaptive"),
            extra={"max.batch.size": 100, "skip.messages.without.change": True},
            transforms=(Mask(fields=("email",)), Filter(when=TopicMatches(pattern="x"), negate=True)),
        ),
    )


def test_a_file_may_declare_nothing(tmp_path: Path) -> None:
    file = tmp_path / "none.toml"
    file.write_text("", encoding="utf-8")

    assert load_connectors(file) == ()


@pytest.mark.parametrize(
    ("old", "new", "field", "remedy"),
    [
        ('type = "postgres"', 'type = "postgress"', "postgress", "did you mean postgres?"),
        ('type = "postgres"\n', "", "", "choose one of"),
        ('type = "postgres"', 'type = "sqlserver"', "sqlserver", "choose one of custom, mariadb,"),
        ('type = "postgres"', 'type = "mongodb"', "mongodb", "choose one of custom, mariadb,"),
        ("tables =", "table =", "table", "did you mean tables?"),
        ('database = "shop"\n', "", "database", "add database = …"),
        ('host = "db"', "host = 7", "host", "see the field's type"),
        ('host = "db"', 'host = "db"\nport = "5432"', "port", "see the field's type"),
        ('host = "db"', 'host = "db"\ntransactions = 1', "transactions", "see the field's type"),
        ('["public.items"]', '"public.items"', "tables", "see the field's type"),
        ('["public.items"]', '["public.items", 3]', "tables", "see the field's type"),
        ('host = "db"', 'host = "db"\nencoding = "json"', "encoding", "write a table with a type"),
        ('host = "db"', 'host = "db"\nencoding = { type = "jsn" }', "encoding.jsn", "did you mean json?"),
        ('host = "db"', 'host = "db"\ntransforms = [{ type = "msk" }]', "transforms[0].msk", "did you mean mask?"),
        ('host = "db"', 'host = "db"\ntransforms = [{ type = "mask" }]', "transforms[0].fields", "add fields"),
        ('host = "db"', 'host = "db"\ntransforms = { type = "mask" }', "transforms", "[[connector.transforms]]"),
        ('host = "db"', 'host = "db"\nextra = { "max.batch.siz" = 1 }', "max.batch.siz", "max.batch.size?"),
        ('host = "db"', 'host = "db"\nextra = { "max.batch.size" = 1.5 }', "extra", "see the field's type"),
    ],
)
def test_a_mistake_is_told_with_file_connector_and_field(written, old, new, field, remedy):
    file = written(POSTGRES.replace("shop", "first", 1).replace('"first"', '"other"'), POSTGRES.replace(old, new))

    with pytest.raises(InvalidConnector) as refused:
        load_connectors(file)

    place = f"{file}: connector[1]"
    assert refused.value.place == (f"{place}.{field}" if field else place)
    assert remedy in refused.value.remedy


@pytest.mark.parametrize(
    ("old", "new", "code", "field"),
    [
        (REFERENCE, "sentinel", "literal-secret", ".password"),
        ('host = "db"', 'host = "db"\nextra = { "hstore.handling.mode" = "map" }', "unsupported-encoding", ".hstore"),
        ("public.items", "items", "invalid-identifier", ".tables"),
        ('["public.items"]', "[]", "invalid-connector", ".tables"),
    ],
)
def test_what_a_declaration_refuses_has_the_connector_s_address_too(written, old, new, code, field):
    file = written(POSTGRES.replace(old, new))

    with raises(InvalidIdentifier if code == "invalid-identifier" else InvalidConnector, code=code) as refused:
        load_connectors(file)

    assert str(refused.value.place).startswith(f"{file}: connector[0]{field}")
    assert "sentinel" not in str(refused.value)


@each_row(
    "text",
    [
        POSTGRES.replace(REFERENCE, "sentinel"),
        POSTGRES.replace(f'"{REFERENCE}"', '["sentinel"]'),
        f'{POSTGRES}extra = {{ "ssl.x" = ["sentinel"] }}',
        f'{POSTGRES}extra = {{ "database.sslpassword" = "sentinel" }}',
        f'{POSTGRES}transforms = [{{ type = "custom", class_name = "x", options = {{ "api.key" = "sentinel" }} }}]',
    ],
)
def test_no_error_about_a_file_shows_a_secret_even_in_its_causes(written: Callable[..., Path], text: str) -> None:
    file = written(text)

    with pytest.raises(InvalidConnector) as refused:
        load_connectors(file)

    assert str(refused.value.place).startswith(f"{file}: connector[0].")
    assert "sentinel" not in "".join(traceback.format_exception(refused.value)) + str(vars(refused.value))


def test_two_connectors_of_one_name_are_refused(written: Callable[..., Path]) -> None:
    with pytest.raises(InvalidConnector, match="two connectors are called 'shop'"):
        load_connectors(written(POSTGRES, POSTGRES))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[conector]]\n", "the file says 'conector'"),
        ("[connector]\n", "connector is one table"),
        ("[[connector", "cannot be read"),
        ("connector = [1]", "is no table but int"),
    ],
)
def test_a_file_that_is_no_list_of_connectors_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "connectors.toml"
    file.write_text(text, encoding="utf-8")

    with pytest.raises(InvalidConnector, match=message) as refused:
        load_connectors(file)

    assert str(file) in str(refused.value.place)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidConnector, match="no such file"):
        load_connectors(tmp_path / "none.toml")
