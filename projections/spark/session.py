"""The Spark session of a projection process."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from projections.errors import ProjectionError, SparkFailed, SparkStopped
from projections.spark.failures import described
from projections.spark.startup import quiet_start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL: Final = "local[*]"
_FOLDER = Path(__file__).parent
_LOGGING = _FOLDER / "log4j2.properties"
_DEFAULTS = "spark-defaults.conf"
# In a rebuild, G1 takes a tenth more of the processors than the collector that stops all threads, and pauses do not
# matter in a batch. A JVM with two collectors does not start: one that the environment names takes precedence.
_COLLECTOR = "-XX:+UseParallelGC"
_OPTIONS_OF_OTHERS = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_OPTIONS_BEFORE = "spark.driver.defaultJavaOptions"
_OPTIONS_OF_EXECUTORS = "spark.executor.extraJavaOptions"
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # The tasks that read a table's list of files, 50 by default: one is enough.
    "spark.databricks.delta.snapshotPartitions": "1",
}
# A cluster's own settings say where its driver is and how finely it shuffles; a machine alone needs no network, and one
# partition a core: fewer would leave cores idle, more would be tasks too short for what it takes to start them.
_LOCAL = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
}


def open_session(
    jars: Sequence[Path] = (),
    *,
    master: str | None = None,
    memory: str = "2g",
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start the process's Spark session, or join it. Times are UTC.

    Args:
        jars: The jars for Kafka and Avro, and those of Delta Lake if its tables are used.
        master: The Spark master, by default ``local[*]``.
        memory: The heap of the driver.
        config: Settings by Spark's names, which override the defaults.

    Examples:
        >>> spark = open_session(spark_jars(), memory="1g")
    """
    from pyspark.sql import SparkSession

    settings = session_settings(jars, master=master, memory=memory, config=config)
    _tell_errors_once()
    builder = SparkSession.builder.appName("factfold")
    for key, value in settings.items():
        builder = builder.config(key, value)
    with quiet_start():
        return builder.getOrCreate()


def session_settings(
    jars: Sequence[Path], *, master: str | None, memory: str, config: Mapping[str, str] | None = None
) -> dict[str, str]:
    """What `open_session` starts Spark with; SparkFailed without Java."""
    _require_java()
    master = master or LOCAL
    # Spark would take the first python3 of the PATH, which need not be the one that has the user's packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    local = _LOCAL if master.startswith("local") else {}
    given = config or {}
    chosen = {**_defaults(memory, given), **local, **(_DELTA if has_delta(jars) else {}), **given}
    if jars:
        chosen["spark.jars"] = ",".join(str(jar) for jar in jars)
    return {**chosen, "spark.master": master}


def _require_java() -> None:
    """Raise SparkFailed where there is no Java: PySpark would say that its gateway exited."""
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") or (home and os.access(Path(home) / "bin" / "java", os.X_OK)):
        return
    raise SparkFailed(
        "Spark cannot start: JAVA_HOME is unset or has no bin/java, and PATH has no `java`",
        remedy="install Java 17 or newer (Debian, Ubuntu: `apt install openjdk-17-jre-headless`)",
    )


@contextmanager
def own_session(
    jars: Sequence[Path] = (), *, master: str, memory: str, config: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session for one purpose, stopped at the end.

    Raises ProjectionError where the process has one: Spark would join the two.
    Joined, this one's master, memory and settings would count for nothing, and both would share the other's slots.
    """
    from pyspark import SparkContext

    if SparkContext._active_spark_context is not None:  # noqa: SLF001 - of any thread, unlike getActiveSession
        raise ProjectionError(
            "this process has a Spark session already, whose settings and slots would be shared",
            remedy="run this in a process of its own, such as factfold branches run, or stop the other session first",
            place=f"master {master}",
            code="session-in-use",
        )
    session = open_session(jars, master=master, memory=memory, config=config)
    try:
        yield session
    finally:
        end_session(session)


def end_session(session: SparkSession) -> None:
    """Stop a session. One whose JVM has ended by itself is stopped: its own error says so."""
    with contextlib.suppress(SparkStopped), described("Spark"):
        session.stop()


def _tell_errors_once() -> None:
    """PySpark logs a query's error with its Java trace, in front of what `projections.spark.failures` says of it."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def _configured(name: str) -> dict[str, str]:
    """The settings of a file next to this one, in the form of Spark's own spark-defaults.conf."""
    lines = (_FOLDER / name).read_text().splitlines()
    settings = (line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    return {key: value for key, value in settings}


def small_batch_session(session: SparkSession) -> SparkSession:
    """A session of the same Spark for small live batches, whose inputs are coalesced to one partition."""
    small = session.newSession()
    for key, value in _configured("small-batches.conf").items():
        small.conf.set(key, value)
    return small


def has_delta(jars: Sequence[Path]) -> bool:
    """Whether Delta Lake is among the jars."""
    return any(jar.name.startswith("delta-spark_") for jar in jars)


def has_delta_lake(session: SparkSession) -> bool:
    """Whether a session reads and writes Delta tables."""
    return "DeltaSparkSessionExtension" in str(session.conf.get("spark.sql.extensions", ""))


def class_archives() -> Path:
    """Where the environment keeps its archive of classes (`projections.spark.class_archive`), if it has one."""
    return Path(sys.prefix) / "share" / "factfold"


def class_archive() -> Path | None:
    """The archive of classes, as long as its name says: a JVM would crash on one that was cut off."""
    archives = sorted(class_archives().glob("spark-classes-*.jsa"))
    return next((path for path in archives if path.name == archive_name(path.stat().st_size)), None)


def archive_name(size: int) -> str:
    """The name of an archive of so many bytes."""
    return f"spark-classes-{size}.jsa"


def driver_options(*, mapped: Path | None, before: str = "") -> str:
    """What the driver's JVM is started with, behind a configuration's own; ``mapped`` is an archive of classes."""
    compiled = _configured(_DEFAULTS)[_OPTIONS_OF_EXECUTORS]
    options = [f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}", compiled, *_collector(before)]
    if mapped is not None:
        # An archive that does not fit is ignored, without a message in the middle of a command's output.
        options += [f"-XX:SharedArchiveFile={mapped}", "-Xshare:auto", "-Xlog:disable -Xlog:all=error:stderr"]
    return " ".join(options)


def _collector(before: str) -> list[str]:
    others = " ".join([before, *(os.environ.get(name, "") for name in _OPTIONS_OF_OTHERS)])
    return [] if re.search(r"-XX:\+Use\w+GC\b", others) else [_COLLECTOR]


def _defaults(memory: str, given: Mapping[str, str]) -> dict[str, str]:
    return {
        **_configured(_DEFAULTS),
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": driver_options(mapped=class_archive(), before=given.get(_OPTIONS_BEFORE, "")),
        # Workers find the user's aggregates where this process found them.
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(_own_paths()),
    }


def _own_paths() -> list[str]:
    """The import path without the interpreter's and its packages' own folders, which the workers have anyway."""
    return [path or os.getcwd() for path in sys.path if not path.startswith((sys.prefix, sys.base_prefix))]
