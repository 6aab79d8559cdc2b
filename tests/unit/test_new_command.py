"""The project that `factfold new` writes, and the images of its servers."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from typer.testing import Result

import cdc
from docs.docker_files import rendered, write
from eventstore.errors import InvalidArgument
from factfold import scaffolding as factfold_scaffolding
from factfold.scaffolding import create_project, write_docker
from factfold.settings_file import use_settings_file
from factfold.stack.postgres import SETTINGS
from factfold.stack.versions import versions
from tests.commands import factfold, program
from tests.unit.test_named_commands import READ

ROOT = Path(__file__).parents[2]
EXPORT = ("stack", "export", "here", "--json")


def run(*words: str) -> Result:
    return factfold(*words)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_project_has_code_tests_and_settings_and_no_more(folder: Path) -> None:
    written = {str(file.relative_to(folder / "shop")) for file in create_project("shop", parent=folder)}
    assert written == {str(f.relative_to(folder / "shop")) for f in (folder / "shop").rglob("*") if f.is_file()}
    files = {
        "Makefile",
        "README.md",
        "connectors.toml",
        "factfold.toml",
        "pyproject.toml",
        ".gitignore",
    }
    code = {f"shop/{name}.py" for name in ("orders", "customers", "views", "branches", "reviews", "payments", "demo")}
    tests = {f"tests/{name}.py" for name in ("conftest", "test_orders", "test_payments", "test_reviews", "test_views")}
    assert files | code | tests | {"shop/__init__.py", ".github/workflows/ci.yml"} == written
    assert sum(len((folder / "shop" / file).read_text("utf-8").splitlines()) for file in written) <= 900


def test_no_file_has_a_placeholder_left_and_every_file_can_be_read(folder: Path) -> None:
    own = create_project("ticket_desk", parent=folder)
    own += [file for file in write_docker(folder, service="ticket_desk") if file.parent == folder]
    readers = {".py": ast.parse, ".toml": tomllib.loads, ".yaml": yaml.safe_load, ".yml": yaml.safe_load}
    for file in own:
        text = file.read_text("utf-8")
        assert "$name" not in text
        assert "${name}" not in text
        assert "$source" not in text
        readers.get(file.suffix, str)(text)
    assert {"ticket_desk", "tests", folder.name} <= {file.parent.name for file in own}


def test_the_connectors_can_be_declared_and_capture_the_topics_that_the_views_read(folder: Path) -> None:
    create_project("shop", parent=folder)
    outbox, rows = cdc.load_connectors(folder / "shop" / "connectors.toml")
    assert isinstance(outbox, cdc.OutboxSource)
    assert isinstance(rows, cdc.PostgresSource)
    assert rows.topics == ("shop.public.customers",)
    assert 'topic="shop.public.customers"' in (folder / "shop" / "shop" / "views.py").read_text("utf-8")


def test_the_images_are_those_of_the_repository_and_come_alone_without_a_service(folder: Path) -> None:
    (name,) = {Path(file).relative_to("here").parts[0] for file in json.loads(run(*EXPORT).output)["files"]}
    assert name == "docker"
    images = [file for file in (ROOT / "docker").rglob("*") if file.is_file()]
    written = {file: folder / "here" / file.relative_to(ROOT) for file in images}
    assert all(copy.read_text("utf-8") == file.read_text("utf-8") for file, copy in written.items())


def test_images_of_no_service_are_refused_before_a_file_is_written(folder: Path) -> None:
    with pytest.raises(InvalidArgument, match="'my-shop' is not a name"):
        write_docker(folder, service="my-shop")
    assert list(folder.iterdir()) == []


def test_the_compose_file_includes_a_file_that_is_there(compose: dict[str, Any]) -> None:
    assert all(Path("shop", one["path"]).is_file() for one in compose["include"])


@pytest.fixture
def compose(folder: Path) -> dict[str, Any]:
    create_project("shop", parent=folder)
    assert run("stack", "export", "shop", "--service", "shop").exit_code == 0
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
    _, servers = written.split("# The road with servers, by Docker (factfold stack export).")
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
    origin = f"factfold[all] @ {ROOT.as_uri()}"  # of the tests' own Factfold
    for given, installed in (([], origin), (["FACTFOLD=../here[all]"], "../here[all]")):
        planned = subprocess.run(
            ["make", "-n", "setup", *given], cwd="shop", capture_output=True, text=True, check=True
        )
        assert f"pip install '{installed}'" in planned.stdout
    steps = yaml.safe_load(Path("shop/.github/workflows/ci.yml").read_text("utf-8"))["jobs"]["test"]["steps"]
    assert "make setup" in [step.get("run") for step in steps]


FILE = "file:///here/factfold-0.1.0-py3-none-any.whl"
GIT = {"url": "https://host/factfold.git", "vcs_info": {"vcs": "git", "commit_id": "4f1c"}}


@pytest.mark.parametrize(
    ("recorded", "installed"),
    [
        (None, "factfold[all]"),
        ({"url": FILE, "archive_info": {}}, f"factfold[all] @ {FILE}"),
        (GIT, "factfold[all] @ git+https://host/factfold.git@4f1c"),
    ],
)
def test_a_project_installs_factfold_from_where_it_came(
    folder: Path, monkeypatch: pytest.MonkeyPatch, recorded: dict[str, Any] | None, installed: str
) -> None:
    texts = {"direct_url.json": recorded and json.dumps(recorded)}
    monkeypatch.setattr(factfold_scaffolding, "distribution", lambda _name: SimpleNamespace(read_text=texts.get))
    create_project("shop", parent=folder)
    assert f"\nFACTFOLD ?= {installed}\n" in Path("shop/Makefile").read_text("utf-8")


def test_without_factfold_in_the_python_at_hand_the_environment_comes_first(folder: Path) -> None:
    create_project("shop", parent=folder)
    Path("shop/bare").write_text("#!/bin/sh\nexit 1\n")
    Path("shop/bare").chmod(0o755)
    made = subprocess.run(
        ["make", "test", "PYTHON=./bare", "MAKE=echo made:"], cwd="shop", capture_output=True, text=True
    )
    assert "made: setup" in made.stdout
    assert "pytest" in made.stdout.partition("made: setup")[2]


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
    with pytest.raises(InvalidArgument) as refused:
        create_project(name, parent=folder)
    assert refused.value.message == cause
    assert list(folder.iterdir()) == []


def test_an_existing_folder_is_refused_and_left_as_it_is(folder: Path) -> None:
    (folder / "shop").mkdir()
    (folder / "shop" / "mine.txt").write_text("mine")
    with pytest.raises(InvalidArgument, match="'shop' exists in this folder"):
        create_project("shop", parent=folder)
    assert [file.name for file in (folder / "shop").iterdir()] == ["mine.txt"]


def test_the_version_is_printed() -> None:
    from importlib.metadata import version

    assert run("--version").output == f"factfold {version('factfold')}\n"


# ---- docker/ gives the same servers as the local stack


DOCKER = Path(__file__).parents[2] / "docker"


@pytest.fixture(scope="module")
def servers() -> dict[str, Any]:
    parsed: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    return parsed


@pytest.mark.parametrize("name", sorted(rendered()))
def test_a_generated_file_is_what_the_versions_file_makes_of_it(name: str) -> None:
    assert (DOCKER / name).read_text("utf-8") == rendered()[name], "run `python -m docs.docker_files docker`"


def test_writing_the_files_anew_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path)
    written = {str(path.relative_to(tmp_path)): path.read_text("utf-8") for path in tmp_path.rglob("*.*")}
    assert written == rendered()


def test_the_compose_file_starts_the_three_servers_and_a_registry_where_it_is_asked_for(
    servers: dict[str, Any],
) -> None:
    always = {name for name, service in servers["services"].items() if "profiles" not in service}
    assert always == {"postgres", "kafka", "connect"}
    assert servers["services"]["registry"]["profiles"] == ["registry"]
    assert all("healthcheck" in service for service in servers["services"].values())


def test_postgres_has_the_settings_of_the_local_stack(servers: dict[str, Any]) -> None:
    words = servers["services"]["postgres"]["command"]
    assert words[0] == "postgres"
    assert dict(word.split("=", 1) for word in words[1:] if word != "-c") == SETTINGS


def test_every_variable_of_the_compose_file_has_a_value_or_says_that_it_needs_one(
    servers: dict[str, Any],
) -> None:
    used = set(re.findall(r"\$\{(\w+)\}", str(servers)))
    given = {line.split("=")[0] for line in rendered()[".env"].splitlines() if not line.startswith("#")}
    assert used == given
    assert "${POSTGRES_PASSWORD:?" in str(servers)


@pytest.mark.parametrize("image", ["kafka", "registry"])
def test_the_image_takes_every_build_argument_and_names_no_version_of_its_own(
    servers: dict[str, Any], image: str
) -> None:
    dockerfile = (DOCKER / image / "Dockerfile").read_text()
    arguments = servers["services"][image]["build"]["args"]
    assert set(arguments) <= set(re.findall(r"^ARG (\w+)", dockerfile, re.MULTILINE))
    assert servers["services"]["connect"]["build"] == servers["services"]["kafka"]["build"]
    wanted = versions()
    for version in (wanted.kafka, wanted.debezium, wanted.postgres, wanted.registry):
        assert version not in dockerfile


@pytest.mark.parametrize("image", ["kafka", "registry"])
def test_everything_the_image_copies_is_there(image: str) -> None:
    dockerfile = (DOCKER / image / "Dockerfile").read_text()
    for line in re.findall(r"^COPY (?!--from)(.+)$", dockerfile, re.MULTILINE):
        for name in line.split()[:-1]:
            assert (DOCKER / image / name).exists()


def test_the_worker_may_run_as_the_owner_of_the_secrets_files(servers: dict[str, Any]) -> None:
    assert servers["services"]["connect"]["user"] == "${CONNECT_USER:-kafka}"
    assert "USER kafka" in (DOCKER / "kafka" / "Dockerfile").read_text()


def test_no_port_is_published_beyond_this_machine(servers: dict[str, Any]) -> None:
    ports = [port for service in servers["services"].values() for port in service["ports"]]
    assert len(ports) == 4
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_start_script_is_valid_and_refuses_an_unknown_server() -> None:
    ran = subprocess.run(["sh", DOCKER / "kafka" / "start", "zookeeper"], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (2, "usage: start kafka | connect\n")


def test_docker_is_no_python_package() -> None:
    assert not (DOCKER / "__init__.py").exists()
