"""Settings of the commands in one file, `factfold.toml`; a variable of the environment wins over it.

store_url = "postgresql+psycopg://shop@db/shop"   # FACTFOLD_STORE_URL
[kafka]
bootstrap_servers = "broker-1:9092"               # FACTFOLD_KAFKA__BOOTSTRAP_SERVERS
[spark]
master = "local[2]"                               # FACTFOLD_SPARK_MASTER
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import eventstore
import projections
from eventstore.errors import InvalidSettings

if TYPE_CHECKING:
    from pydantic import BaseModel

FILE: Final = "factfold.toml"
VARIABLE: Final = "FACTFOLD_SETTINGS"
"""The variable that names another file."""

PLAIN: Final = frozenset({
    "admin_url", "archive", "checkpoints", "class_archive", "connect_url", "home", "inbox_url", "ivy_settings",
    "keys_url", "metrics_host", "metrics_port", "prepare", "restarts", "secrets_dir", "source_url", "stack",
    "store_schema", "store_source", "store_topic_prefix", "store_url", "tracing", "views_url",
})  # fmt: skip
"""Settings without a table: the names of their variables, in lower case and without FACTFOLD_."""

SECRETS: Final = frozenset({"master_keys"})
"""Settings that only a variable holds."""

_HEADER: Final = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]")
_KEY: Final = re.compile(r"\s*([\w.\"'-]+(?:\s*\.\s*[\w\"'-]+)*)\s*=")


def use_settings_file(environment: MutableMapping[str, str] = os.environ) -> None:
    """Set the variables that the settings file of this folder names and the environment lacks.

    Reads `factfold.toml`, or the file that FACTFOLD_SETTINGS names. Without a file, nothing changes.
    Raises InvalidSettings with the line if a setting is unknown, is a secret or has a wrong type.

    Examples:
        >>> use_settings_file()
        >>> settings = Settings()
    """
    named = environment.get(VARIABLE)
    file = Path(named or FILE)
    if named or file.exists():
        variables = dict(_variables(file, _read(file)))
        given = {name.upper() for name in environment} | _within_json(environment)
        environment.update({name: value for name, value in variables.items() if name not in given})


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise InvalidSettings(
            f"the settings file {str(file)!r} cannot be read: {reason}", remedy=f"correct {VARIABLE}, or the file"
        ) from error


def _variables(file: Path, text: str) -> Iterator[tuple[str, str]]:
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidSettings(f"{file.name} is not TOML: {error}", remedy="correct this line") from None
    for name, value in tables.items():
        place = _Place(file, text, name)
        if name in PLAIN:
            yield f"FACTFOLD_{name}".upper(), _text(value, place)
        elif name in SECRETS:
            raise place.secret(f"FACTFOLD_{name}".upper())
        elif name in _models() and isinstance(value, dict):
            yield from _of_table(name, value, file, text)
        else:
            raise place.unknown([*PLAIN, *(f"[{table}]" for table in _models())])


def _of_table(table: str, settings: Mapping[str, Any], file: Path, text: str) -> Iterator[tuple[str, str]]:
    fields = _models()[table].model_fields
    prefix = "FACTFOLD_SPARK_" if table == "spark" else f"FACTFOLD_{table}__".upper()
    for name, value in settings.items():
        place, variable = _Place(file, text, f"{table}.{name}"), prefix + name.upper()
        if name not in fields:
            raise place.unknown(fields)
        if "SecretStr" in str(fields[name].annotation):
            raise place.secret(variable)
        takes_table = "dict" in str(fields[name].annotation)
        yield variable, _json(value, place) if takes_table else _text(value, place)


def _models() -> Mapping[str, type[BaseModel]]:
    return {
        "kafka": eventstore.KafkaSettings,
        "registry": eventstore.RegistrySettings,
        "spark": projections.SparkSettings,
    }


def _within_json(environment: Mapping[str, str]) -> set[str]:
    """The variables whose values stand in one of the environment that holds a whole table as JSON."""
    names: set[str] = set()
    for table in ("KAFKA", "REGISTRY"):
        try:
            given = json.loads(environment.get(f"FACTFOLD_{table}", "{}"))
        except ValueError:
            continue  # Settings refuses it, with its name
        names |= {f"FACTFOLD_{table}__{name}".upper() for name in given} if isinstance(given, dict) else set()
    return names


def _text(value: object, place: _Place) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float) and "\0" not in str(value):
        return str(value)
    problem = "holds a NUL character" if isinstance(value, str) else f"is a {type(value).__name__}"
    raise place.wrong(problem, remedy="write one text, number or boolean")


def _json(value: object, place: _Place) -> str:
    if isinstance(value, dict) and all(isinstance(one, str) for one in value.values()):
        return json.dumps(value)
    raise place.wrong(f"is a {type(value).__name__}", remedy="write a table of texts")


class _Place:
    """A setting of a file, by its dotted name, for errors."""

    def __init__(self, file: Path, text: str, name: str) -> None:
        self._file, self._name = file.name, name
        self._line = _line_of(text, name)

    def unknown(self, known: Iterable[str]) -> InvalidSettings:
        """The error of a setting that does not exist."""
        names = sorted(known)
        close = difflib.get_close_matches(self._name.rpartition(".")[2], names, n=1, cutoff=0.5)
        remedy = f"did you mean {close[0]}?" if close else f"the settings are {', '.join(names)}"
        return InvalidSettings(f"there is no setting {self._name}", remedy=remedy, place=str(self))

    def wrong(self, problem: str, *, remedy: str) -> InvalidSettings:
        """The error of a setting with a wrong value, which is not shown."""
        return InvalidSettings(f"the setting {self._name} {problem}", remedy=remedy, place=str(self))

    def secret(self, variable: str) -> InvalidSettings:
        """The error of a secret in a file."""
        return self.wrong("is a secret, which does not belong in a file", remedy=f"set {variable} instead")

    def __str__(self) -> str:
        return self._file if self._line is None else f"{self._file}, line {self._line}"


def _line_of(text: str, name: str) -> int | None:
    """The first line that names a setting or its table; None if it is written in a way that no line shows."""
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = _bare(header[1])
        key = _KEY.match(line)
        written = ".".join(filter(None, (table, _bare(key[1])))) if key else table
        if written == name or written.startswith(f"{name}."):
            return number
    return None


def _bare(key: str) -> str:
    return re.sub(r"[\s\"']", "", key)
