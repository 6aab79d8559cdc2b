"""What the JVM of the session is started with."""

from __future__ import annotations

import pytest

from projections.spark import session

ENVIRONMENT = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")


@pytest.fixture
def options(monkeypatch):
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    return lambda: session._defaults("1g")["spark.driver.extraJavaOptions"].split()


def test_the_driver_collects_with_all_threads_at_once(options):
    assert "-XX:+UseParallelGC" in options()


@pytest.mark.parametrize("name", ENVIRONMENT)
def test_a_collector_that_the_environment_names_goes_before(options, monkeypatch, name):
    monkeypatch.setenv(name, "-Xss1m -XX:+UseZGC")
    assert not [option for option in options() if option.endswith("GC")]


def test_what_is_no_collector_changes_nothing(options, monkeypatch):
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseStringDeduplication -XX:-UseGCOverheadLimit")
    assert "-XX:+UseParallelGC" in options()
