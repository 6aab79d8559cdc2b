"""docker/ gives the same servers as the local stack."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.docker_files import rendered, write
from factfold.stack.postgres import SETTINGS
from factfold.stack.versions import versions

DOCKER = Path(__file__).parents[2] / "docker"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
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
    compose: dict[str, Any],
) -> None:
    always = {name for name, service in compose["services"].items() if "profiles" not in service}
    assert always == {"postgres", "kafka", "connect"}
    assert compose["services"]["registry"]["profiles"] == ["registry"]
    assert all("healthcheck" in service for service in compose["services"].values())


def test_postgres_has_the_settings_of_the_local_stack(compose: dict[str, Any]) -> None:
    words = compose["services"]["postgres"]["command"]
    assert words[0] == "postgres"
    assert dict(word.split("=", 1) for word in words[1:] if word != "-c") == SETTINGS


def test_every_variable_of_the_compose_file_has_a_value_or_says_that_it_needs_one(
    compose: dict[str, Any],
) -> None:
    used = set(re.findall(r"\$\{(\w+)\}", str(compose)))
    given = {line.split("=")[0] for line in rendered()[".env"].splitlines() if not line.startswith("#")}
    assert used == given
    assert "${POSTGRES_PASSWORD:?" in str(compose)


@pytest.mark.parametrize("image", ["kafka", "registry"])
def test_the_image_takes_every_build_argument_and_names_no_version_of_its_own(
    compose: dict[str, Any], image: str
) -> None:
    dockerfile = (DOCKER / image / "Dockerfile").read_text()
    arguments = compose["services"][image]["build"]["args"]
    assert set(arguments) <= set(re.findall(r"^ARG (\w+)", dockerfile, re.MULTILINE))
    assert compose["services"]["connect"]["build"] == compose["services"]["kafka"]["build"]
    wanted = versions()
    for version in (wanted.kafka, wanted.debezium, wanted.postgres, wanted.registry):
        assert version not in dockerfile


@pytest.mark.parametrize("image", ["kafka", "registry"])
def test_everything_the_image_copies_is_there(image: str) -> None:
    dockerfile = (DOCKER / image / "Dockerfile").read_text()
    for line in re.findall(r"^COPY (?!--from)(.+)$", dockerfile, re.MULTILINE):
        for name in line.split()[:-1]:
            assert (DOCKER / image / name).exists()


def test_the_worker_may_run_as_the_owner_of_the_secrets_files(compose: dict[str, Any]) -> None:
    assert compose["services"]["connect"]["user"] == "${CONNECT_USER:-kafka}"
    assert "USER kafka" in (DOCKER / "kafka" / "Dockerfile").read_text()


def test_no_port_is_published_beyond_this_machine(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service["ports"]]
    assert len(ports) == 4
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_start_script_is_valid_and_refuses_an_unknown_server() -> None:
    ran = subprocess.run(["sh", DOCKER / "kafka" / "start", "zookeeper"], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (2, "usage: start kafka | connect\n")


def test_docker_is_no_python_package() -> None:
    assert not (DOCKER / "__init__.py").exists()
