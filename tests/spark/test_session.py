"""A session for one purpose: not where the process has another."""

from __future__ import annotations

import threading

import pytest

from projections.errors import SessionInUse
from projections.spark.session import own_session


def test_a_session_of_its_own_is_refused_where_the_process_has_one_and_leaves_that_alone(spark):
    with pytest.raises(SessionInUse) as caught, own_session(master="local[3]", memory="1g"):
        pass
    assert "a process of its own" in caught.value.remedy
    assert spark.range(3).count() == 3


def test_it_is_refused_in_another_thread_too(spark):
    refused = []

    def attempt():
        try:
            with own_session(master="local[3]", memory="1g"):
                pass
        except SessionInUse as error:
            refused.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    assert refused
    assert spark.range(3).count() == 3


def test_wide_decoding_is_compiled_to_machine_code(spark):
    arguments = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    wanted = {"-XX:-DontCompileHugeMethods", "-XX:ReservedCodeCacheSize=512m"}
    assert wanted <= set(arguments)
    assert wanted <= set(spark.conf.get("spark.executor.extraJavaOptions").split())
