"""Java: found, missing, too old."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from factfold.stack.errors import StackError
from factfold.stack.java import feature_version, require_java, server_options, start_lightly
from tests.errors import raises


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
    with raises(StackError, code="no-java", match="no Java was found") as failure:
        require_java()
    assert "openjdk-17-jre-headless" in failure.value.remedy


def test_a_java_that_is_too_old_is_refused_with_its_version_and_place(only: Path) -> None:
    java = put_java(only, 'openjdk version "11.0.22" 2024-01-16')
    with raises(StackError, code="java-too-old", match="Java 11 is too old, the servers need 17 or newer") as failure:
        require_java()
    assert failure.value.place == str(java)
    assert "apt install" in failure.value.remedy


def test_a_new_java_is_taken(only: Path) -> None:
    java = put_java(only, 'openjdk version "21" 2023-09-19')
    found = require_java()
    assert (found.executable, found.version) == (java, 21)


def test_java_home_goes_before_path(only: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_java(only, 'openjdk version "11.0.22"')
    preferred = put_java(tmp_path / "home" / "bin", 'openjdk version "17.0.15"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert require_java().executable == preferred


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
def test_the_feature_version_is_read_from_every_spelling(printed: str, version: int) -> None:
    assert feature_version(printed, place="java") == version


def test_a_version_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(StackError, match="printed 'Picked up options', no version"):
        feature_version("Picked up options", place="java")


def test_jvms_start_lightly_unless_the_environment_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    monkeypatch.setenv("KAFKA_JVM_PERFORMANCE_OPTS", "-XX:+UseZGC '-Dwith a=blank'")
    start_lightly()
    assert os.environ["SPARK_SUBMIT_OPTS"]
    assert server_options() == ["-XX:+UseZGC", "-Dwith a=blank"]
    monkeypatch.delenv("SPARK_SUBMIT_OPTS")
