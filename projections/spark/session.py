"""The Spark session of a projection process, and what lets it start sooner.

An archive has Spark's classes as a JVM has them once they are loaded, in a file that the next JVM maps instead of
loading them: HotSpot's dynamic archives of classes (JEP 350). A JVM that the file does not fit, because Java, a jar or
the folder of the environment is another one, starts without it.

A shared JVM outlives the Python processes which use it, one after another. Spark's own launcher gives a Python process
the address of the JVM that has started it, by two variables. A process that is started with the variables of this one
joins its JVM: the classes are loaded and compiled already.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from eventstore.closing import Closing
from projections.errors import ProjectionError, SparkFailed, SparkStopped
from projections.spark.failures import described

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Spark asks for this module, and no option of the JVM turns the warning off.
_PRINTED_AT_EVERY_START: Final = frozenset({b"WARNING: Using incubator modules: jdk.incubator.vector\n"})
_LAST_LINES_SECONDS: Final = 1.0
_STDERR: Final = 2
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
_WRITTEN_WITHIN: Final = 300.0  # seconds for a JVM to write 200 MB on its way out; seen: 10 on two busy cores
# The JVM logs a line for each class that it cannot archive, some thousand lines.
_QUIET: Final = "-Xlog:disable"
_STOP_SECONDS: Final = 10.0
# Stands in the folder of the archive from the beginning of an attempt until the archive is there.
_BEGUN: Final = "begun"
_AGAIN_SECONDS: Final = 86_400.0


@contextmanager
def quiet_start() -> Iterator[None]:
    """Filter the stderr of the JVM that is started in the block, for as long as that JVM lives.

    The JVM inherits the write end of a pipe. A thread copies every other line to this process's stderr.
    """
    shown = os.dup(_STDERR)
    reading, writing = os.pipe()
    os.dup2(writing, _STDERR)
    os.close(writing)
    copying = Thread(target=_copy, args=(reading, shown), name="spark-stderr", daemon=True)
    copying.start()
    try:
        yield
    except BaseException:
        os.dup2(shown, _STDERR)
        copying.join(_LAST_LINES_SECONDS)  # a JVM that did not start says why before the error is raised
        raise
    os.dup2(shown, _STDERR)


def _copy(reading: int, shown: int) -> None:
    with open(reading, "rb") as lines, open(shown, "wb", buffering=0) as stderr:
        for line in lines:
            if line not in _PRINTED_AT_EVERY_START:
                stderr.write(line)


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
    if shutil.which("java", path=_java_path()):
        return
    raise SparkFailed(
        "Spark cannot start: JAVA_HOME is unset or has no bin/java, and PATH has no `java`",
        remedy="install Java 17 or newer (Debian, Ubuntu: `apt install openjdk-17-jre-headless`)",
    )


def _java_path() -> str:
    """Where Spark looks for Java."""
    home = os.environ.get("JAVA_HOME")
    return os.pathsep.join([*([f"{home}/bin"] if home else []), os.environ.get("PATH", os.defpath)])


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
    """Where the environment keeps its archive of classes (`projections.spark.session`), if it has one."""
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


def make_class_archive(jars: Sequence[Path], rehearse: Callable[[SparkSession], None], *, memory: str = "2g") -> Path:
    """Start Spark, let it do what is rehearsed, and keep what it loaded for this environment's next starts.

    The process's Spark is stopped for good: nothing else can be done in it. Returns the file, which takes the place of
    an earlier one at once. Raises ProjectionError.
    """
    folder = class_archives()
    made = folder / f"{os.getpid()}.jsa"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        options = f"{driver_options(mapped=None)} {_QUIET} -XX:ArchiveClassesAtExit={made}"
        with TemporaryDirectory() as scratch:
            config = {"spark.driver.extraJavaOptions": options, "spark.sql.warehouse.dir": scratch}
            with own_session(jars, master="local[*]", memory=memory, config=config) as spark:
                rehearse(spark)
        _wait_for_the_jvm(made)
        return _replaced(folder, made)
    except OSError as error:
        raise _not_made(error.strerror or str(error), made) from error
    finally:
        made.unlink(missing_ok=True)


def _replaced(folder: Path, made: Path) -> Path:
    """JVMs that have mapped an earlier file use it until they end."""
    earlier, target = list(folder.glob("spark-classes-*.jsa")), folder / archive_name(made.stat().st_size)
    made.replace(target)
    (folder / _BEGUN).unlink(missing_ok=True)
    for path in earlier:
        if path != target:
            path.unlink(missing_ok=True)
    return target


def _wait_for_the_jvm(made: Path) -> None:
    """The JVM ends when its connections are closed, and writes the archive before it ends."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway  # noqa: SLF001 - nothing else knows of the JVM's process
    gateway.shutdown()
    gateway.proc.stdin.close()
    try:
        code = gateway.proc.wait(_WRITTEN_WITHIN)
    except subprocess.TimeoutExpired as error:
        gateway.proc.kill()  # or it would leave a file that nothing removes
        raise _not_made(f"the JVM has not written it within {_WRITTEN_WITHIN:g} s", made) from error
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    if code or not made.exists():
        raise _not_made(f"the JVM ended with {code} and wrote none", made)


def _not_made(cause: str, made: Path) -> ProjectionError:
    return ProjectionError(
        f"the archive of classes cannot be stored: {cause}",
        remedy="run it with 300 MB free, as a user that may write there. Spark starts without it too",
        place=str(made.parent),
        code="class-archive-not-made",
    )


def archive_behind(command: Sequence[str]) -> subprocess.Popen[bytes] | None:
    """Start a command that makes the archive of classes, if this process has started a Spark without a fitting one.

    The command is detached, at the lowest priority and without output. It begins when this process has done its work,
    since it needs as much memory as the work itself. Returns None where nothing is started: while another one runs,
    within a day of one that failed, where the folder cannot be written, and where FACTFOLD_CLASS_ARCHIVE is off.
    """
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    started = context is not None and context._gateway is not None  # noqa: SLF001 - it stands when Spark has stopped
    if not started or os.environ.get("FACTFOLD_CLASS_ARCHIVE") == "off" or _fits(class_archive()):
        return None
    mark = class_archives() / _BEGUN
    own = {name: value for name, value in os.environ.items() if name != "FACTFOLD_SETTINGS"}  # its settings are set
    try:
        mark.parent.mkdir(parents=True, exist_ok=True)
        if mark.exists() and time.time() - mark.stat().st_mtime > _AGAIN_SECONDS:
            mark.unlink()
        mark.touch(exist_ok=False)
        begun = subprocess.Popen(  # noqa: S603
            command, cwd=mark.parent, env=own, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.setpriority(os.PRIO_PROCESS, begun.pid, 19)
    except OSError:
        return None
    return begun


def _fits(archive: Path | None) -> bool:
    """Whether an archive is newer than Java and the jars of Spark: HotSpot ignores it otherwise."""
    pyspark, java = sys.modules["pyspark"].__file__, shutil.which("java", path=_java_path())
    made_of = [Path(pyspark or "").parent / "jars", Path(java or "").resolve()]
    return archive is not None and all(archive.stat().st_ctime >= one.stat().st_ctime for one in made_of)


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
