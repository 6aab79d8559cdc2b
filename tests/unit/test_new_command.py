"""`factfold new`: which files it writes, and which names it refuses."""

from __future__ import annotations

import ast
import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import Result

import cdc
from factfold.scaffolding import ProjectRefused, create_project
from factfold.settings_file import use_settings_file
from tests.commands import factfold, program
from tests.unit.test_names_of_settings import READ


def run(*words: str) -> Result:
    return factfold(*words)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_project_has_code_tests_settings_and_the_images_of_its_servers(folder: Path) -> None:
    written = {str(file.relative_to(folder / "shop")) for file in create_project("shop", parent=folder)}
    assert written == {str(f.relative_to(folder / "shop")) for f in (folder / "shop").rglob("*") if f.is_file()}
    files = {
        "Makefile",
        "README.md",
        "compose.yaml",
        "connectors.toml",
        "factfold.toml",
        "pyproject.toml",
        ".gitignore",
        "Dockerfile",
        ".dockerignore",
    }
    code = {f"shop/{name}.py" for name in ("orders", "customers", "views", "branches", "reviews", "payments", "demo")}
    assert files | code | {".github/workflows/ci.yml", "docker/compose.yaml", "docker/kafka/Dockerfile"} <= written


def test_no_file_has_a_placeholder_left_and_every_file_can_be_read(folder: Path) -> None:
    own = [f for f in create_project("ticket_desk", parent=folder) if "docker" not in f.relative_to(folder).parts]
    readers = {".py": ast.parse, ".toml": tomllib.loads, ".yaml": yaml.safe_load, ".yml": yaml.safe_load}
    for file in own:
        text = file.read_text("utf-8")
        assert "$name" not in text
        assert "${name}" not in text
        readers.get(file.suffix, str)(text)
    assert {"ticket_desk", "tests"} <= {file.parent.name for file in own}


def test_the_connectors_can_be_declared_and_capture_the_topics_that_the_views_read(folder: Path) -> None:
    create_project("shop", parent=folder)
    outbox, rows = cdc.load(folder / "shop" / "connectors.toml")
    assert isinstance(outbox, cdc.OutboxSource)
    assert isinstance(rows, cdc.PostgresSource)
    assert rows.topics == ("shop.public.customers",)
    assert 'topic="shop.public.customers"' in (folder / "shop" / "shop" / "views.py").read_text("utf-8")


def test_the_compose_file_includes_a_file_that_is_there(folder: Path) -> None:
    create_project("shop", parent=folder)
    compose = yaml.safe_load((folder / "shop" / "compose.yaml").read_text("utf-8"))
    assert all((folder / "shop" / one["path"]).is_file() for one in compose["include"])


@pytest.fixture
def compose(folder: Path) -> dict[str, Any]:
    create_project("shop", parent=folder)
    parsed: dict[str, Any] = yaml.safe_load((folder / "shop" / "compose.yaml").read_text("utf-8"))
    return parsed


def test_the_services_start_after_the_servers_and_only_when_they_are_asked_for(compose: dict[str, Any]) -> None:
    assert set(compose["services"]) == {"views", "branches", "reviews", "payments"}
    servers = yaml.safe_load(Path("shop/docker/compose.yaml").read_text("utf-8"))["services"]
    for service in compose["services"].values():
        assert service["profiles"] == ["service"]
        assert set(service["depends_on"]) == {"postgres", "kafka"} <= set(servers)
        assert Path("shop", service["build"], "Dockerfile").is_file()


@pytest.mark.parametrize("service", ["views", "branches", "reviews", "payments"])
def test_a_service_of_the_compose_file_runs_a_command_with_all_that_it_requires(
    folder: Path, compose: dict[str, Any], service: str
) -> None:
    factfold, group, name, target = compose["services"][service]["command"].split()
    assert factfold == "factfold"
    command: Any = program().commands[group].commands[name]  # type: ignore[attr-defined]
    given = compose["services"][service]["environment"]
    required = [one for one in command.params if one.required and one.param_type_name == "option"]
    assert {one.envvar for one in required} <= set(given)
    assert {variable for variable in given if variable.startswith("FACTFOLD_")} <= READ
    module, _, attribute = target.partition(":")
    defined = ast.parse((folder / "shop" / (module.replace(".", "/") + ".py")).read_text("utf-8")).body
    assert attribute in {name for statement in defined for name in names_of(statement)}


def names_of(statement: ast.stmt) -> list[str]:
    """The names that a statement of a module defines."""
    if isinstance(statement, ast.Assign):
        return [one.id for one in statement.targets if isinstance(one, ast.Name)]
    return [getattr(statement, "name", "")]


def test_the_settings_are_known_those_of_the_servers_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_project("shop", parent=folder)
    monkeypatch.chdir(folder / "shop")
    written = Path("factfold.toml").read_text("utf-8")
    embedded: dict[str, str] = {}
    use_settings_file(embedded)
    assert embedded["FACTFOLD_VIEWS_URL"] == "sqlite:///shop.db"
    _, servers = written.split("# The road with servers, as `make up` starts them.")
    Path("factfold.toml").write_text(servers.partition("\n")[2].replace("# ", "").replace("#", ""), "utf-8")
    with_servers: dict[str, str] = {}
    use_settings_file(with_servers)
    assert with_servers["FACTFOLD_VIEWS_URL"] == "postgresql+psycopg://postgres@127.0.0.1/shop_views"
    assert with_servers["FACTFOLD_KAFKA__BOOTSTRAP_SERVERS"] == "127.0.0.1:9092"


def test_the_readme_has_thirty_lines(folder: Path) -> None:
    create_project("shop", parent=folder)
    assert len((folder / "shop" / "README.md").read_text("utf-8").splitlines()) <= 30


def test_what_is_installed_is_named_once_for_people_and_ci(folder: Path) -> None:
    create_project("shop", parent=folder)
    for given, installed in (([], "factfold[all]"), (["FACTFOLD=../here[all]"], "../here[all]")):
        planned = subprocess.run(
            ["make", "-n", "setup", *given], cwd="shop", capture_output=True, text=True, check=True
        )
        assert f"pip install '{installed}'" in planned.stdout
    steps = yaml.safe_load(Path("shop/.github/workflows/ci.yml").read_text("utf-8"))["jobs"]["test"]["steps"]
    assert "make setup" in [step.get("run") for step in steps]


def test_json_lists_the_written_files(folder: Path) -> None:
    printed = json.loads(run("new", "shop", "--json").output)
    assert printed["project"] == "shop"
    assert "shop/shop/orders.py" in printed["files"]
    assert all((folder / file).is_file() for file in printed["files"])


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("Shop", "'Shop' is not a name of a Python package"),
        ("my-shop", "'my-shop' is not a name of a Python package"),
        ("../shop", "'../shop' is not a name of a Python package"),
        ("class", "'class' is not a name of a Python package"),
        ("", "'' is not a name of a Python package"),
        ("x" * 41, f"'{'x' * 41}' is not a name of a Python package"),
        ("docker", "a project has a folder 'docker' of its own"),
        ("json", "Python has a module 'json' already"),
        ("eventstore", "Python has a module 'eventstore' already"),
    ],
)
def test_a_name_that_cannot_be_a_package_is_refused(folder: Path, name: str, cause: str) -> None:
    with pytest.raises(ProjectRefused) as refused:
        create_project(name, parent=folder)
    assert refused.value.message == cause
    assert list(folder.iterdir()) == []


def test_an_existing_folder_is_refused_and_left_as_it_is(folder: Path) -> None:
    (folder / "shop").mkdir()
    (folder / "shop" / "mine.txt").write_text("mine")
    with pytest.raises(ProjectRefused, match="'shop' exists in this folder"):
        create_project("shop", parent=folder)
    assert [file.name for file in (folder / "shop").iterdir()] == ["mine.txt"]


def test_the_version_is_printed() -> None:
    from importlib.metadata import version

    assert run("--version").output == f"factfold {version('factfold')}\n"
