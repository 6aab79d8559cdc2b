"""Downloads through the Ivy that PySpark ships, from Ivy's own default central repository."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from factfold.stack.errors import ArtifactError
from factfold.stack.java import Java
from factfold.stack.versions import Coordinate

# Our lists are complete, so the poms, half of all requests, are not read.
SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""
_PATTERN = "[artifact]-[revision](-[classifier]).[ext]"


def module_description(coordinates: Iterable[Coordinate]) -> str:
    """Write the ivy.xml that names exactly these files; no two may differ in version only."""
    lines = [
        '<ivy-module version="2.0" xmlns:e="http://ant.apache.org/ivy/extra">',
        '  <info organisation="factfold" module="stack"/>',
        "  <dependencies>",
        *(_dependency(coordinate) for coordinate in coordinates),
        "  </dependencies>",
        "</ivy-module>",
    ]
    return "\n".join(lines) + "\n"


def retrieve(coordinates: Sequence[Coordinate], *, into: Path, java: Java, on_file: Callable[[], None]) -> None:
    """Download files into `into/files`, calling `on_file` after each; raises ArtifactError."""
    into.mkdir(parents=True, exist_ok=True)
    (into / "ivy.xml").write_text(module_description(coordinates), "utf-8")
    (into / "ivysettings.xml").write_text(SETTINGS, "utf-8")
    output: list[str] = []
    with subprocess.Popen(  # noqa: S603
        _command(into, java=java),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as ivy:
        for line in ivy.stdout or ():
            output.append(line)
            if "[SUCCESSFUL ]" in line:
                on_file()
    if ivy.returncode != 0:
        raise failure(output)


def _command(folder: Path, *, java: Java) -> list[str]:
    # FACTFOLD_IVY_SETTINGS is for people behind a mirror: their own ivysettings.xml.
    own_settings = os.environ.get("FACTFOLD_IVY_SETTINGS")
    return [
        *(str(java.executable), f"-Divy.default.ivy.user.dir={folder / 'user'}"),
        *("-cp", str(_ivy_jar()), "org.apache.ivy.Main"),
        *("-settings", own_settings or str(folder / "ivysettings.xml")),
        *("-ivy", str(folder / "ivy.xml"), "-cache", str(folder / "cache")),
        *("-retrieve", str(folder / "files" / _PATTERN), "-types", "jar", "bundle", "tar.gz"),
    ]


def _ivy_jar() -> Path:
    spec = find_spec("pyspark")  # finds the folder without importing it
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for jar in sorted(Path(folder, "jars").glob("ivy-*.jar")):
            return jar
    raise ArtifactError(
        "the servers' jars are fetched by the Ivy inside PySpark, and PySpark is not installed",
        remedy="pip install 'factfold[spark]'",
    )


def _dependency(coordinate: Coordinate) -> str:
    name, extension = quoteattr(coordinate.name), quoteattr(coordinate.extension)
    group, version = quoteattr(coordinate.group), quoteattr(coordinate.version)
    classifier = f" e:classifier={quoteattr(coordinate.classifier)}" if coordinate.classifier else ""
    artifact = f"<artifact name={name} type={extension} ext={extension}{classifier}/>"
    return f'    <dependency org={group} name={name} rev={version} transitive="false">{artifact}</dependency>'


def failure(output: list[str]) -> ArtifactError:
    """Turn what Ivy printed into one line of cause; its last 40 lines come along as a note."""
    lines = [line.strip() for line in output if line.strip()]
    error = ArtifactError(
        f"a download failed: {_cause(lines)}",
        remedy="check the network (behind a mirror: FACTFOLD_IVY_SETTINGS=your ivysettings.xml), run again",
    )
    error.add_note("\n".join(lines[-40:]))
    return error


def _cause(lines: list[str]) -> str:
    # An unreachable server is the reason of all the "not found" lines above it.
    for sign in ("Server access error", "not found. url=", "module not found", "download failed", "Exception"):
        for line in lines:
            if sign in line:
                return line
    return lines[-1] if lines else "Ivy ended without a word"
