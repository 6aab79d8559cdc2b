"""Spark's classes as a JVM has them once they are loaded, in a file that the next JVM maps instead of loading them.

HotSpot's dynamic archives of classes (JEP 350). A JVM that the file does not fit, because Java, a jar or the folder of
the environment is another one, starts without it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from projections.errors import ProjectionError
from projections.spark.session import archive_name, class_archives, driver_options, own_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WRITTEN_WITHIN: Final = 300.0  # seconds for a JVM to write 200 MB on its way out; seen: 10 on two busy cores
# The JVM logs a line for each class that it cannot archive, some thousand lines.
_QUIET: Final = "-Xlog:disable"


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
        with own_session(
            jars, master="local[*]", memory=memory, config={"spark.driver.extraJavaOptions": options}
        ) as spark:
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
