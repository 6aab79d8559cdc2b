"""A JVM of Spark that outlives the Python processes which use it, one after another.

Spark's own launcher gives a Python process the address of the JVM that has started it, by two variables. A process that
is started with the variables of this one joins its JVM: the classes are loaded and compiled already.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from eventstore.closing import Closing
from projections.spark.session import session_settings
from projections.spark.startup import quiet_start

_STOP_SECONDS: Final = 10.0


class SharedJvm(Closing):
    """Starts the JVM; ``jars`` and ``memory`` are those of `open_session`, which its users cannot choose any more.

    Raises SparkFailed without Java.
    """

    def __init__(self, jars: Sequence[Path] = (), *, memory: str = "2g") -> None:
        from pyspark import SparkConf
        from pyspark.java_gateway import launch_gateway

        settings = session_settings(jars, master=None, memory=memory)
        with quiet_start():
            conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
            self._gateway: Any = launch_gateway(conf)  # type: ignore[no-untyped-call]

    @property
    def variables(self) -> Mapping[str, str]:
        """The variables by which a Python process joins the JVM."""
        parameters = self._gateway.gateway_parameters
        return {"PYSPARK_GATEWAY_PORT": str(parameters.port), "PYSPARK_GATEWAY_SECRET": str(parameters.auth_token)}

    def release(self) -> bool:
        """Stop the Spark context that a killed process has left, and return whether there was one."""
        contexts = getattr(self._gateway.jvm.org.apache.spark, "SparkContext$")
        active = getattr(contexts, "MODULE$").getActive()
        if active.isDefined():
            active.get().stop()
        return bool(active.isDefined())

    def close(self) -> None:
        """End the JVM."""
        process: subprocess.Popen[bytes] = self._gateway.proc  # of the JVM that PySpark has started
        self._gateway.shutdown()
        try:
            process.communicate(timeout=_STOP_SECONDS)  # closes its input, at whose end the JVM ends
        except subprocess.TimeoutExpired:
            process.kill()
