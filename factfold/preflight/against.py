"""States by the deployed code and by the present one: two processes fold the same events, and fields are compared.

Run as a module, it is such a process: it folds by the code of its folder.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from eventstore.errors import DeclarationError
from factfold import on_demand
from factfold.cli.definitions import find_definitions
from factfold.cli.events.store import existing_store
from factfold.cli.show import as_json, ended
from factfold.preflight.findings import Checked, Finding, green, red, unknown, yellow

if TYPE_CHECKING:
    from sqlalchemy import URL

_ERROR: Final = "error: "  # before the cause that a process shows
_PLACE: Final = itemgetter(0, 1)  # the stream, and which code


def against(checked: Checked) -> Iterator[Finding]:
    """Each stream has the same state by the deployed code, which ``checked.against`` names."""
    if checked.against is None:
        return
    if checked.store is None:
        yield unknown("states", "no event store is named", "give --store-url")
        return
    with TemporaryDirectory(prefix="factfold-deployed-") as folder:
        before, after = Path(folder, "before"), Path(folder, "after")
        # So many of each category: what is appended meanwhile is no difference.
        events = on_demand.by_category(on_demand.stored_forms(checked.store))
        most = {category: min(count, checked.sample or count) for category, count in events.items()}
        unpacked = _unpacked(checked.against, Path(folder))
        for code, output in ((unpacked, before), (Path.cwd(), after)):
            if cause := _fold(checked, checked.store.engine.url, most, code, output, within=unpacked):
                remedy = "name a commit or a wheel whose code can be imported here"
                yield red("states: not compared", cause, remedy, "not-compared")
                return
        with before.open() as one, after.open() as other:
            yield from _differences(checked.against, one, other)


def _unpacked(deployed: str, folder: Path) -> Path:
    """The code of a commit or of a wheel, in a folder. Raises DeclarationError."""
    archive, cause = Path(deployed), ""
    try:
        if archive.suffix != ".whl":
            archive = folder / "code.zip"
            named = _git("rev-parse", "--verify", "--end-of-options", f"{deployed}^{{commit}}")
            cause = named.stderr or _git("archive", "-o", str(archive), named.stdout.strip()).stderr
        with zipfile.ZipFile(archive) as code:
            code.extractall(folder / "code")
    except (OSError, zipfile.BadZipFile) as error:
        raise DeclarationError(
            f"there is no code of {deployed!r}: {(cause.strip() or str(error)).splitlines()[0]}",
            remedy="give --against a commit, branch or tag of this folder's repository, or a wheel",
        ) from error
    return folder / "code"


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    command = [shutil.which("git") or "git", *words]
    return subprocess.run(command, capture_output=True, text=True, errors="replace")  # noqa: S603 - our own command


def _fold(checked: Checked, url: URL, most: Mapping[str, int], code: Path, output: Path, *, within: Path) -> str:
    """Fold by the code of a folder, in a process. Return why that failed. The address goes by the environment."""
    if url.get_backend_name() == "sqlite":
        url = url.set(database=str(Path(url.database or "").absolute()))
    variables = os.environ | {"FACTFOLD_STORE_URL": url.render_as_string(hide_password=False)}
    variables |= {"FACTFOLD_STORE_SCHEMA": schema} if (schema := checked.places.store_schema) else {}
    if code == within:
        former = os.environ.get("PYTHONPATH")
        variables["PYTHONPATH"] = os.pathsep.join([str(code / "src"), *([former] if former else [])])
    words = [str(output), str(within) if code == within else "", json.dumps(most), *checked.definitions.targets]
    command = [sys.executable, "-m", "factfold.preflight.against", *words]
    done = subprocess.run(  # noqa: S603 - our own command
        command, cwd=code, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        errors="replace",
    )  # fmt: skip
    if not done.returncode:
        return ""
    said = [line for line in done.stderr.splitlines() if line.strip()] or [f"it ended with {done.returncode}"]
    return next((line for line in reversed(said) if line.startswith(_ERROR)), said[-1]).removeprefix(_ERROR)


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
        yield yellow(field, cause, "make sure that it is meant", "state-differs")
    if not found:
        yield green("states", f"{streams:,} streams have the states of {deployed}")


def _states(lines: Iterable[str], side: int) -> Iterator[tuple[str, int, dict[str, Any]]]:
    for line in lines:
        stream, state = json.loads(line)
        yield stream, side, state


def _fields(states: Mapping[int, dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """The fields that one of the codes lacks, or that have another value."""
    if len(states) == 1:
        yield "stream", f"only the {'deployed' if 0 in states else 'present'} code folds it"
        return
    before, after = states[0], states[1]
    for name in sorted(before.keys() | after.keys()):
        if name not in before or name not in after:
            yield name, f"only the {'deployed' if name in before else 'present'} code has the field"
        elif before[name] != after[name]:
            yield name, f"{json.dumps(before[name])} became {json.dumps(after[name])}"


def write_states(targets: Sequence[str], most: Mapping[str, int], output: Path, within: Path | None = None) -> None:
    """Write stream and state of each stream that folds by the code of this folder, in the order of their names.

    `most` has the number of events to read of each category. Raises DeclarationError for a module that cannot be
    imported, or that lies outside of `within`.
    """
    definitions = find_definitions(targets)
    kinds = {kind.category: kind for kind in definitions.aggregates.values()}
    definitions.require_complete()
    for name in sorted({target.partition(":")[0] for target in targets} | {kind.__module__ for kind in kinds.values()}):
        file = getattr(sys.modules[name], "__file__", None)
        if within and file and not Path(file).resolve().is_relative_to(within.resolve()):
            raise DeclarationError(f"it has no module {name}: that of {file} was found", remedy="name other code")
    url, schema = os.environ["FACTFOLD_STORE_URL"], os.environ.get("FACTFOLD_STORE_SCHEMA")
    with existing_store(url, schema) as store, output.open("w") as states:
        on_demand.refuse_writes(store.engine)
        for category, kind in sorted(kinds.items()):
            for stream, state in sorted(on_demand.refolded(store, kind, limit=most.get(category, 0)).states.items()):
                states.write(json.dumps([stream, as_json(state.state())]) + "\n")


if __name__ == "__main__":
    _, written, within, given, *named = sys.argv
    place = Path(within) if within else None
    sys.exit(ended(lambda: write_states(named, json.loads(given), Path(written), place)))
