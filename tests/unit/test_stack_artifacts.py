"""Artifacts with their checksums, the Java that runs them, and connectors of the stack."""

from __future__ import annotations

import hashlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree

import pytest

from factfold.stack import StackInfo, artifacts
from factfold.stack.connect import in_stack
from factfold.stack.errors import ArtifactError, StackError
from factfold.stack.java import Java, feature_version, require_java, server_options, start_lightly
from factfold.stack.versions import Coordinate, versions
from tests.errors import raises
from tests.unit.cdc.declared import mysql, outbox, postgres

JAR = Coordinate("org.example", "thing", "1.0")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FACTFOLD_HOME", str(tmp_path))
    return tmp_path


def known_as(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setitem(versions().sha256, JAR.filename, hashlib.sha256(content).hexdigest())


def downloads(monkeypatch: pytest.MonkeyPatch, content: bytes | None) -> list[Path]:
    """Put in Ivy's place a download that brings `content`, or nothing."""
    calls: list[Path] = []

    def retrieve(coordinates: list[Coordinate], *, into: Path, java: Java, on_file: object) -> None:
        calls.append(into)
        for coordinate in coordinates if content is not None else ():
            (into / "files").mkdir(parents=True)
            (into / "files" / coordinate.filename).write_bytes(content or b"")

    monkeypatch.setattr(artifacts, "ivy_files", retrieve)
    return calls


def test_every_artifact_has_a_checksum_and_every_checksum_an_artifact() -> None:
    names = [one.filename for one in (*versions().artifacts, *versions().registry_archive, *versions().delta_jars)]
    assert sorted(names) == sorted(versions().sha256)
    assert len(names) == len(set(names))


def test_the_servers_have_the_versions_the_file_says_at_its_top() -> None:
    wanted = versions()
    names = {artifact.filename for artifact in wanted.artifacts}
    assert f"kafka_2.13-{wanted.kafka}.jar" in names
    assert f"connect-runtime-{wanted.kafka}.jar" in names
    assert f"debezium-connector-postgres-{wanted.debezium}-plugin.tar.gz" in names
    assert f"spark-sql-kafka-0-10_2.13-{wanted.spark}.jar" in names


def test_a_coordinate_carries_classifier_and_extension_and_has_no_other_shape() -> None:
    parsed = Coordinate.parse("io.debezium:plugin:3.7:plugin@tar.gz")
    assert parsed == Coordinate("io.debezium", "plugin", "3.7", "plugin", "tar.gz")
    assert parsed.filename == "plugin-3.7-plugin.tar.gz"
    for text in ("a:b", "a:b:c:d:e"):
        with pytest.raises(ValueError, match="not group:name:version"):
            Coordinate.parse(text)


def test_the_description_for_ivy_names_each_file_once_and_nothing_transitive() -> None:
    root = ElementTree.fromstring(artifacts.module_description(versions().kafka_jars + versions().debezium_plugins))
    dependencies = root.findall("./dependencies/dependency")
    assert len(dependencies) == len(versions().kafka_jars) + 1
    assert {dependency.get("transitive") for dependency in dependencies} == {"false"}


def test_a_file_that_is_not_what_its_checksum_says_never_reaches_the_cache(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known_as(monkeypatch, b"the real jar")
    downloads(monkeypatch, b"another jar")
    with pytest.raises(ArtifactError, match=r"thing-1\.0\.jar has sha256 .* jars\.sha256 says"):
        artifacts.fetch([JAR])
    assert not artifacts.cached(JAR).exists()
    assert list((home / "cache").glob("fetch-*")) == []


def test_a_file_the_repository_lacks_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    downloads(monkeypatch, None)
    with pytest.raises(ArtifactError, match=r"thing-1\.0\.jar was not downloaded") as failure:
        artifacts.fetch([JAR])
    assert failure.value.place == "org.example:thing:1.0"


def test_a_file_without_a_checksum_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    downloads(monkeypatch, b"anything")
    with pytest.raises(ArtifactError, match="has no checksum"):
        artifacts.fetch([JAR])


def test_two_who_fetch_at_once_download_once_and_who_comes_later_finds_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known_as(monkeypatch, b"the real jar")
    calls = downloads(monkeypatch, b"the real jar")
    together = threading.Barrier(2)

    def fetch() -> list[Path]:
        together.wait(30)
        return artifacts.fetch([JAR])

    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(fetch), pool.submit(fetch)]
    assert found[0].result() == found[1].result() == artifacts.fetch([JAR]) == [artifacts.cached(JAR)]
    assert artifacts.cached(JAR).read_bytes() == b"the real jar"
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("printed", "cause"),
    [
        (["module not found: org.example#thing;1.0"], "module not found: org.example#thing;1.0"),
        (
            ["module not found: org.example#thing;1.0", "Server access error at url x (Connection refused)"],
            "Server access error at url x (Connection refused)",
        ),
        (["Error: Could not find or load main class"], "Error: Could not find or load main class"),
        ([], "Ivy ended without a word"),
    ],
)
def test_ivys_own_words_become_the_cause(printed: list[str], cause: str) -> None:
    failure = artifacts.ivy_failure(printed)
    assert failure.message == f"a download failed: {cause}"
    assert "FACTFOLD_IVY_SETTINGS" in failure.remedy


# ---- java


def put_java(folder: Path, prints: str, *, exit_code: int = 0) -> Path:
    """Make a `java` that prints what is given to stderr, as the real one does."""
    folder.mkdir(parents=True, exist_ok=True)
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho '{prints}' >&2\nexit {exit_code}\n")
    java.chmod(0o755)
    return java


@pytest.fixture
def only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "bin"


def test_a_missing_java_is_an_error_that_says_what_to_install(only: Path) -> None:
    with raises(StackError, code="no-java", match="no Java was found", remedy="openjdk-17-jre-headless"):
        require_java()


def test_a_java_that_is_too_old_is_refused_with_its_version_and_place(only: Path) -> None:
    java = put_java(only, 'openjdk version "11.0.22" 2024-01-16')
    with raises(StackError, code="java-too-old", match="Java 11 is too old, the servers need 17 or newer") as failure:
        require_java()
    assert failure.value.place == str(java)
    assert "apt install" in failure.value.remedy


def test_java_home_goes_before_path(only: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_java(only, 'openjdk version "11.0.22"')
    preferred = put_java(tmp_path / "home" / "bin", 'openjdk version "17.0.15"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    found = require_java()
    assert (found.executable, found.version) == (preferred, 17)


def test_a_java_that_does_not_run_is_an_error_with_its_place(only: Path) -> None:
    java = put_java(only, "broken", exit_code=1)
    with pytest.raises(StackError, match="does not work") as failure:
        require_java()
    assert failure.value.place == str(java)


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_202"', 8),
        ('openjdk version "26-ea" 2026-03-17', 26),
    ],
)
def test_the_feature_version_is_read_from_every_spelling_or_missed(printed: str, version: int) -> None:
    assert feature_version(printed, place="java") == version
    with pytest.raises(StackError, match="printed 'Picked up options', no version"):
        feature_version("Picked up options", place="java")


def test_jvms_start_lightly_unless_the_environment_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    monkeypatch.setenv("KAFKA_JVM_PERFORMANCE_OPTS", "-XX:+UseZGC '-Dwith a=blank'")
    start_lightly()
    assert os.environ["SPARK_SUBMIT_OPTS"]
    assert server_options() == ["-XX:+UseZGC", "-Dwith a=blank"]
    monkeypatch.delenv("SPARK_SUBMIT_OPTS")


# ---- connectors brought to a local stack


INFO = StackInfo("here", Path("/stacks/here"), {"postgres": 5433, "kafka": 9, "connect": 8}, "hush", {})


@pytest.mark.parametrize("declare", [postgres, outbox])
def test_host_port_and_secrets_folder_are_the_stacks(declare: object) -> None:
    connector = declare()  # type: ignore[operator]
    config, own = in_stack(connector, INFO).config(), connector.config()
    assert config["database.hostname"] == "127.0.0.1"
    assert config["database.port"] == "5433"
    assert config["database.password"] == "${file:/stacks/here/secrets/shop.properties:password}"
    changed = {key for key in config if config[key] != own[key]}
    # The text in place of a missing value follows from the address.
    assert changed - {"unavailable.value.placeholder", "transforms.unavailable.static.value"} == {
        "database.hostname",
        "database.port",
        "database.password",
    }


def test_a_password_of_another_provider_and_another_database_stay_as_they_are() -> None:
    assert in_stack(postgres(password="${env:PASSWORD}"), INFO).config()["database.password"] == "${env:PASSWORD}"
    assert in_stack(mysql(), INFO) == mysql()
