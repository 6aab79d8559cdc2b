"""The files the servers are made of: fetched once, checked against their checksums, then used offline.

Downloads through the Ivy that PySpark ships, from Ivy's own default central repository.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from factfold.stack.errors import ArtifactError
from factfold.stack.java import Java, require_java
from factfold.stack.state import cache_folder, exclusive, workshop
from factfold.stack.versions import Coordinate, versions

# Our lists are complete, so the poms, half of all requests, are not read.
IVY_SETTINGS = """<ivysettings>
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


def ivy_files(coordinates: Sequence[Coordinate], *, into: Path, java: Java, on_file: Callable[[], None]) -> None:
    """Download files into `into/files`, calling `on_file` after each; raises ArtifactError."""
    into.mkdir(parents=True, exist_ok=True)
    (into / "ivy.xml").write_text(module_description(coordinates), "utf-8")
    (into / "ivysettings.xml").write_text(IVY_SETTINGS, "utf-8")
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
        raise ivy_failure(output)


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


def ivy_failure(output: list[str]) -> ArtifactError:
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


# Requests wait on the network more than on the processor: 97 files took 26 s one by one, 10 s four at once.
_AT_ONCE = 4


def spark_jars() -> list[Path]:
    """Return the jars that a Spark session of Factfold needs, and download the missing ones. Raises ArtifactError.

    Examples:
        >>> environment = Environment.open(Settings(), views_url="postgresql+psycopg://…", jars=spark_jars())
    """
    return fetch(versions().spark_jars)


def delta_jars() -> list[Path]:
    """Return the further jars that Delta tables of views, and archives, need, and download the missing ones.

    Examples:
        >>> jars = [*spark_jars(), *delta_jars()]
        >>> environment = Environment.open(Settings(), views_url="postgresql+psycopg://…", jars=jars)
    """
    return fetch(versions().delta_jars)


def kafka_jars() -> list[Path]:
    """Return the class path of the Kafka broker and of Kafka Connect, fetching missing ones."""
    return fetch(versions().kafka_jars)


def connect_plugins() -> list[Path]:
    """Return one folder for each plugin of Kafka Connect, connectors and converter, fetching missing files."""
    pinned = versions()
    archives = fetch(pinned.debezium_plugins)
    return [*(_unpacked(archive) for archive in archives), _converter(pinned.registry)]


def registry_folder() -> Path:
    """Return the unpacked schema registry, fetching it the first time."""
    (archive,) = fetch(versions().registry_archive)
    return _unpacked(archive)


def _converter(version: str) -> Path:
    """Return a folder whose only subfolder is the Avro converter's class path: a worker loads each subfolder apart."""
    jars = fetch(versions().registry_converter)

    def link(plugin: Path) -> None:
        classes = plugin / "avro-converter"
        classes.mkdir(parents=True)
        for jar in jars:
            os.link(jar, classes / jar.name)

    return _plugin(f"apicurio-converter-{version}", link)


def fetch(coordinates: Sequence[Coordinate]) -> list[Path]:
    """Return the cached files of these coordinates in order, downloading what is missing."""
    if missing(coordinates):
        with exclusive(cache_folder() / "fetch.lock"):
            _download(missing(coordinates))
    return [cached(coordinate) for coordinate in coordinates]


def cached(coordinate: Coordinate) -> Path:
    """Say where a file stands in the cache, whether it is there or not."""
    return cache_folder() / "jars" / coordinate.filename


def missing(coordinates: Sequence[Coordinate]) -> list[Coordinate]:
    """Return the coordinates whose files are not in the cache; a file there was checked when it came."""
    return [coordinate for coordinate in coordinates if not cached(coordinate).exists()]


def check(path: Path, *, expected: str | None) -> None:
    """Raise ArtifactError unless the file's sha256 is the expected one."""
    if expected is None:
        raise ArtifactError(
            f"{path.name} has no checksum in jars.sha256",
            remedy="add it to factfold/jars.sha256",
            place=str(path),
        )
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != expected:
        raise ArtifactError(
            f"{path.name} has sha256 {actual[:12]}…, jars.sha256 says {expected[:12]}…",
            remedy="remove it and fetch again. If it stays, the repository you reach serves another file",
            place=str(path),
        )


def _download(coordinates: Sequence[Coordinate]) -> None:
    if not coordinates:
        return
    java = require_java()
    with workshop() as folder, _progress(len(coordinates)) as on_file:
        batches = [batch for batch in (coordinates[i::_AT_ONCE] for i in range(_AT_ONCE)) if batch]
        folders = [folder / str(i) for i in range(len(batches))]

        def retrieve(batch: Sequence[Coordinate], into: Path) -> None:
            ivy_files(batch, into=into, java=java, on_file=on_file)
            for coordinate in batch:
                _admit(coordinate, into / "files" / coordinate.filename)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(retrieve, batches, folders))


def _admit(coordinate: Coordinate, downloaded: Path) -> None:
    """Move a checked file into the cache in one step: a reader sees it whole or not at all."""
    if not downloaded.exists():
        raise ArtifactError(
            f"{coordinate.filename} was not downloaded",
            remedy="check that the repository you reach has it",
            place=f"{coordinate.group}:{coordinate.name}:{coordinate.version}",
        )
    check(downloaded, expected=versions().sha256.get(coordinate.filename))
    cached(coordinate).parent.mkdir(parents=True, exist_ok=True)
    downloaded.chmod(0o644)
    os.replace(downloaded, cached(coordinate))


def _unpacked(archive: Path) -> Path:
    def extract(plugin: Path) -> None:
        with tarfile.open(archive) as tar:
            # Python 3.11.2, Debian 12's, has no filters yet; the archive is what its checksum says either way.
            if hasattr(tarfile, "data_filter"):
                tar.extraction_filter = tarfile.data_filter
            tar.extractall(plugin)  # noqa: S202

    return _plugin(archive.name.removesuffix(".tar.gz"), extract)


def _plugin(name: str, fill: Callable[[Path], None]) -> Path:
    """Return the folder of a plugin; `fill` makes it the first time, and it appears when it is whole."""
    folder = cache_folder() / "plugins" / name
    if folder.exists():
        return folder
    with exclusive(cache_folder() / "fetch.lock"), workshop() as made:
        if not folder.exists():
            fill(made / "plugin")
            folder.parent.mkdir(parents=True, exist_ok=True)
            os.replace(made / "plugin", folder)
    return folder


@contextmanager
def _progress(total: int) -> Iterator[Callable[[], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # stderr: `--json` on stdout stays JSON.
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("downloading the servers", total=total)
        yield lambda: bar.advance(task)
