"""What the JVM of the session is started with."""

from __future__ import annotations

import pytest

from projections.errors import SparkFailed
from projections.spark import session

ENVIRONMENT = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")


@pytest.fixture
def options(monkeypatch, tmp_path):
    monkeypatch.setattr(session.sys, "prefix", str(tmp_path))
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    return lambda **given: session._defaults("1g", given)["spark.driver.extraJavaOptions"].split()


@pytest.mark.parametrize("name", ENVIRONMENT)
def test_a_collector_that_the_environment_names_goes_before(options, monkeypatch, name):
    monkeypatch.setenv(name, "-Xss1m -XX:+UseZGC")
    assert not [option for option in options() if option.endswith("GC")]


def test_so_does_one_of_the_configuration(options):
    found = options(**{"spark.driver.defaultJavaOptions": "-XX:+UseG1GC"})
    assert not [option for option in found if option.endswith("GC")]


def test_an_archive_of_classes_is_mapped_where_there_is_one_and_never_spoken_of_on_stdout(options):
    assert not [option for option in options() if "SharedArchiveFile" in option]
    session.class_archives().mkdir(parents=True)
    archive = session.class_archives() / "spark-classes-9.jsa"
    archive.write_bytes(b"123456789")
    assert {f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:disable"} <= set(options())


@pytest.mark.parametrize("name", ["spark-classes-10.jsa", "spark-classes-8.jsa", "4711.jsa"])
def test_one_that_was_cut_off_or_is_being_written_is_none(options, name):
    session.class_archives().mkdir(parents=True)
    (session.class_archives() / name).write_bytes(b"123456789")
    assert not [option for option in options() if "SharedArchiveFile" in option]


def test_without_java_one_line_says_so(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(SparkFailed, match="Spark cannot start: JAVA_HOME is unset"):
        session.open_session()
