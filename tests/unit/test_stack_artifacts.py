"""Files of the stack: names, checksums, downloads that go wrong."""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree

import pytest

from factfold.stack import artifacts
from factfold.stack.errors import ArtifactError
from factfold.stack.java import Java
from factfold.stack.versions import Coordinate, versions

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
    names = [one.filename for one in (*versions().artifacts, versions().registry_archive, *versions().delta_jars)]
    assert sorted(names) == sorted(versions().sha256)
    assert len(names) == len(set(names))


def test_the_servers_have_the_versions_the_file_says_at_its_top() -> None:
    wanted = versions()
    names = {artifact.filename for artifact in wanted.artifacts}
    assert f"kafka_2.13-{wanted.kafka}.jar" in names
    assert f"connect-runtime-{wanted.kafka}.jar" in names
    assert f"debezium-connector-postgres-{wanted.debezium}-plugin.tar.gz" in names
    assert f"spark-sql-kafka-0-10_2.13-{wanted.spark}.jar" in names


def test_a_coordinate_carries_classifier_and_extension() -> None:
    parsed = Coordinate.parse("io.debezium:plugin:3.7:plugin@tar.gz")
    assert parsed == Coordinate("io.debezium", "plugin", "3.7", "plugin", "tar.gz")
    assert parsed.filename == "plugin-3.7-plugin.tar.gz"


@pytest.mark.parametrize("text", ["a:b", "a:b:c:d:e"])
def test_a_coordinate_of_another_shape_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not group:name:version"):
        Coordinate.parse(text)


def test_the_description_for_ivy_names_each_file_once_and_nothing_transitive() -> None:
    root = ElementTree.fromstring(artifacts.module_description(versions().kafka_jars + versions().plugins))
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


def test_a_cached_file_is_not_fetched_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known_as(monkeypatch, b"the real jar")
    calls = downloads(monkeypatch, b"the real jar")
    first = artifacts.fetch([JAR])
    assert artifacts.fetch([JAR]) == first
    assert first[0].read_bytes() == b"the real jar"
    assert len(calls) == 1


def test_two_who_fetch_at_once_download_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known_as(monkeypatch, b"the real jar")
    calls = downloads(monkeypatch, b"the real jar")
    together = threading.Barrier(2)

    def fetch() -> list[Path]:
        together.wait(30)
        return artifacts.fetch([JAR])

    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(fetch), pool.submit(fetch)]
    assert found[0].result() == found[1].result() == [artifacts.cached(JAR)]
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
