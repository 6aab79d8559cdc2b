"""The Java the servers run on."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from factfold.stack.errors import StackError
from factfold.stack.versions import versions

# Kafka's own scripts and Spark's launcher read these; so do the servers of the local stack.
_SERVERS, _SPARK = "KAFKA_JVM_PERFORMANCE_OPTS", "SPARK_SUBMIT_OPTS"
# Published jars, checked by their digests, are not verified once more, nor is the code that Spark makes for each plan.
_LIGHT = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    " -XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)


def start_lightly() -> None:
    """Let every JVM that this process starts compile quickly rather than well, unless the environment says otherwise.

    For tests and demonstrations: JVMs that run for minutes on few cores spend most of that time compiling.

    Examples:
        >>> start_lightly()
        >>> stack = LocalStack("tests", ephemeral=True)
    """
    for name in (_SERVERS, _SPARK):
        os.environ.setdefault(name, _LIGHT)


def server_options() -> list[str]:
    """What the environment wants the servers' JVMs to be started with."""
    return shlex.split(os.environ.get(_SERVERS, ""))


@dataclass(frozen=True)
class Java:
    """A usable Java: its executable and its feature version (17, 21, ...)."""

    executable: Path
    version: int


def require_java() -> Java:
    """Find Java by JAVA_HOME, then PATH, and check its version; raises StackError or StackError."""
    executable = _find()
    pinned = versions()
    if executable is None:
        raise StackError(
            "no Java was found: JAVA_HOME is unset or empty and PATH has no `java`", remedy=_remedy(), code="no-java"
        )
    version = _version(executable)
    if version < pinned.java_minimum:
        raise StackError(
            f"Java {version} is too old, the servers need {pinned.java_minimum} or newer",
            remedy=_remedy(),
            place=str(executable),
            code="java-too-old",
        )
    return Java(executable, version)


def _find() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    if home:
        candidate = Path(home) / "bin" / "java"
        if os.access(candidate, os.X_OK):
            return candidate
    executable = shutil.which("java")
    return Path(executable) if executable else None


def _version(executable: Path) -> int:
    try:
        ran = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=60, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as failed:
        raise StackError(
            f"`java -version` does not work: {failed}", remedy=_remedy(), place=str(executable)
        ) from failed
    return feature_version(ran.stderr + ran.stdout, place=str(executable))


def feature_version(output: str, *, place: str) -> int:
    """Read 17 from `openjdk version "17.0.15"` and 8 from `java version "1.8.0_202"`; raises StackError."""
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    if match is None:
        first = output.strip().splitlines()[0] if output.strip() else "nothing"
        raise StackError(f"`java -version` printed {first!r}, no version", remedy=_remedy(), place=place)
    return int(match.group(1))


def _remedy() -> str:
    pinned = versions()
    return (
        f"install Java {pinned.java_minimum} or newer (Debian, Ubuntu: `apt install {pinned.java_package}`) "
        "and have it on PATH or in JAVA_HOME"
    )
