"""States by the deployed code and by the present one: two processes fold the same events, and fields are compared."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from heapq import merge
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, Final

from eventstore.errors import DeclarationError
from factfold.preflight.findings import Checked, Finding, Level

_PLACE: Final = itemgetter(0, 1)  # the stream, and which code


def against(checked: Checked) -> Iterator[Finding]:
    """Each stream has the same state by the deployed code, which ``checked.against`` names."""
    if checked.against is None:
        return
    if checked.store is None:
        yield Finding(Level.UNKNOWN, "states", "no event store is named", "give --store-url")
        return
    with TemporaryDirectory(prefix="factfold-deployed-") as folder:
        code, outputs = _unpacked(checked.against, Path(folder)), (Path(folder, "before"), Path(folder, "after"))
        with outputs[0].open("w") as before, outputs[1].open("w") as after:
            running = [_folding(checked, code, before), _folding(checked, Path.cwd(), after)]
            said = [process.communicate()[1] for process in running]
        for process, errors in zip(running, said, strict=True):
            if process.returncode:
                yield Finding(
                    Level.YELLOW, "states: not compared", errors.partition("\n")[0].removeprefix("error: "),
                    "name a commit or a wheel whose code can be imported here", "not-compared",
                )  # fmt: skip
                return
        with outputs[0].open() as before, outputs[1].open() as after:
            yield from _differences(checked.against, before, after)


def _unpacked(deployed: str, folder: Path) -> Path:
    """The code of a commit or of a wheel, in a folder."""
    archive = Path(deployed)
    if archive.suffix != ".whl":
        archive = folder / "code.zip"
        words = ["archive", "--format=zip", f"--output={archive}", deployed]
        command = [shutil.which("git") or "git", *words]
        git = subprocess.run(command, capture_output=True, text=True)  # noqa: S603 - a command of our own, and no shell's
        if git.returncode:
            raise DeclarationError(
                f"there is no code of {deployed!r}: {git.stderr.strip().partition(chr(10))[0]}",
                remedy="give --against a commit, branch or tag of this folder's repository, or a wheel",
            )
    with zipfile.ZipFile(archive) as code:
        code.extractall(folder / "code")
    return folder / "code"


def _folding(checked: Checked, code: Path, output: IO[str]) -> subprocess.Popen[str]:
    """A process that folds by the code of a folder. The address goes by the environment."""
    assert checked.store is not None  # noqa: S101 - the caller looked
    url = checked.store.engine.url
    if url.get_backend_name() == "sqlite":
        url = url.set(database=str(Path(url.database or "").absolute()))
    variables = os.environ | {"FACTFOLD_STORE_URL": url.render_as_string(hide_password=False)}
    if checked.places.store_schema is not None:
        variables["FACTFOLD_STORE_SCHEMA"] = checked.places.store_schema
    command = [
        sys.executable,
        "-m",
        "factfold.preflight.states",
        str(checked.sample or 0),
        *checked.definitions.targets,
    ]
    return subprocess.Popen(  # noqa: S603 - our own command
        command, cwd=code, env=variables, stdout=output, stderr=subprocess.PIPE, text=True, errors="replace"
    )


def _differences(deployed: str, before: Iterable[str], after: Iterable[str]) -> Iterator[Finding]:
    found: dict[str, tuple[int, str]] = {}
    streams = 0
    for stream, both in groupby(merge(_states(before, 0), _states(after, 1), key=_PLACE), key=itemgetter(0)):
        streams += 1
        for name, change in _fields({side: state for _, side, state in both}):
            field = f"{stream.partition('-')[0]}.{name}"
            count, example = found.get(field, (0, f"{stream}: {change}"))
            found[field] = count + 1, example
    for field, (count, example) in found.items():
        cause = f"{count:,} states differ from those of {deployed}, such as {example}"
        yield Finding(Level.YELLOW, field, cause, "make sure that it is meant", "state-differs")
    if not found:
        yield Finding(Level.GREEN, "states", f"{streams:,} streams have the states of {deployed}")


def _states(lines: Iterable[str], side: int) -> Iterator[tuple[str, int, dict[str, Any]]]:
    for line in lines:
        stream, state = json.loads(line)
        yield stream, side, state


def _fields(states: Mapping[int, dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """The fields of both codes with another value."""
    if len(states) == 1:
        yield "stream", f"only the {'deployed' if 0 in states else 'present'} code folds it"
        return
    before, after = states[0], states[1]
    for name in before.keys() & after.keys():
        if before[name] != after[name]:
            yield name, f"{json.dumps(before[name])} became {json.dumps(after[name])}"
