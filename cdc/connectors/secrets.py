"""Passwords live in a file that the Connect worker reads; connector configurations carry a reference to it.

The worker needs `config.providers=file`, `config.providers.file.class=…FileConfigProvider` and the directory
in `config.providers.file.param.allowed.paths`. A running connector keeps the values it read at its start.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from cdc.errors import InvalidConnector
from eventstore.identifiers import require_type

# What Log4j once evaluated wherever such a text was logged: https://logging.apache.org/security.html#CVE-2021-44228
_LOOKUPS: Final = "jndi lower upper ctx sys java date main map bundle marker event log4j sd spring web".split()
_REFERENCE = re.compile(rf"\$\{{(?!(?:{'|'.join(_LOOKUPS)}):)[A-Za-z0-9_]+:[^${{}}]+\}}", re.IGNORECASE)
_FILE_REFERENCE = re.compile(r"\$\{file:(?P<path>[^:${}]+):(?P<key>[^:${}]+)\}")
_SECRET = re.compile(
    r"password|passphrase|secret|token|credential|jaas|api[._-]?key|private|connection\.string", re.IGNORECASE
)
_NAME = re.compile(r"[A-Za-z0-9_-]+")
# A line of a properties file goes on behind a backslash at its end.
_ENTRY = re.compile(r"^[ \t]*([^\s=:#!\\]+)[ \t]*[=:][ \t]*((?:[^\\\n]|\\[\s\S])*)$", re.MULTILINE)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|([\s\S]))")
# Characters with a meaning of their own in a java properties file.
_ESCAPED: Final = {character: f"\\{character}" for character in "\\=:#! "} | {
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}
_MEANT: Final = {"n": "\n", "r": "\r", "t": "\t"}


def is_reference(text: str) -> bool:
    """Whether a value is a reference to a config provider, `${provider:path:key}`, and nothing else."""
    return _REFERENCE.fullmatch(text) is not None


def sounds_secret(key: str) -> bool:
    """Whether a setting of that name may hold a secret: what no list of settings tells, its name does."""
    return _SECRET.search(key) is not None


def refuse_literal(
    key: str, value: str | SecretStr, *, connector: str, place: str = "", allowable: bool = True
) -> None:
    """Raise InvalidConnector for a secret that is no reference, an empty one too.

    `allowable` is whether its declaration has a field `allow_literal_secrets`.
    """
    text = revealed(value)
    if is_reference(text):
        return
    raise InvalidConnector(
        f"connector {connector!r} carries a literal {key}, which Connect would store and show in clear"
        if text
        else f"connector {connector!r} carries an empty {key}",
        remedy="declare a reference, such as ${file:/secrets/shop.properties:password}, and run factfold cdc prepare"
        + (", or set allow_literal_secrets=True (true in TOML)" if allowable else ""),
        place=place or key,
        code="literal-secret",
    )


def write_secrets(directory: Path, name: str, *, values: Mapping[str, str | SecretStr]) -> dict[str, str]:
    """Write `{directory}/{name}.properties`, readable by its owner only. Return a reference for each key.

    The file is replaced in one step: a worker reads the old values or the new ones.

    Examples:
        >>> write_secrets(Path("/run/secrets"), "shop", values={"password": "…"})
        {'password': '${file:/run/secrets/shop.properties:password}'}
    """
    require_type(directory, Path, "directory", takes="a Path")
    for part in (name, *values):
        _check_name(part)
    path = _checked_path(directory.resolve() / f"{name}.properties")
    _replace(path, "".join(f"{key}={_escape(revealed(value))}\n" for key, value in values.items()))
    return {key: f"${{file:{path}:{key}}}" for key in values}


def replace_secrets(references: Iterable[str], value: str | SecretStr) -> None:
    """Put one value behind `${file:path:key}` references. What else the files hold stays, as do mode and owner.

    Every new file is written before the first one takes its place whole. InvalidConnector for a reference to anything
    but a file, to one that is not on this machine, or to one that this user may not replace as it is.
    """
    keys: dict[Path, list[str]] = {}
    for reference in references:
        path, key = _located(reference)
        keys.setdefault(path, []).append(key)
    with ExitStack() as ready:
        written = []
        for path, names in keys.items():
            with _typed(path):
                text, like = path.read_text(encoding="latin-1"), path.stat()
                for name in names:
                    text = _with_entry(text, name, revealed(value))
                written.append((path, ready.enter_context(_written(path, text, like=like))))
        for path, temporary in written:
            with _typed(path):
                os.replace(temporary, path)


def file_of(reference: str) -> tuple[Path, str] | None:
    """Return the path and the key of a `${file:path:key}` reference, and None for one to another provider."""
    match = _FILE_REFERENCE.fullmatch(reference)
    return None if match is None else (Path(match["path"]), match["key"])


def stored_secret(path: Path, key: str) -> SecretStr | None:
    """Return the value of a key in a secrets file; None if the file or the key is missing.

    Raises InvalidConnector if this user may not read the file.
    """
    with _typed(path, may="read"):
        if not path.is_file():
            return None
        entries = _ENTRY.findall(path.read_text(encoding="latin-1"))
    values = {name: value for name, value in entries if name == key}
    return SecretStr(_unescaped(values[key])) if key in values else None


def store_secret(path: Path, key: str, value: str | SecretStr) -> None:
    """Put a value into a secrets file. A new file is readable by its owner only, and another key stays as it is.

    Raises InvalidConnector if this user may not write the file.
    """
    with _typed(path):
        if not path.is_file():
            _replace(path, f"{key}={_escape(revealed(value))}\n")
            return
    replace_secrets([f"${{file:{path}:{key}}}"], value)


def _located(reference: str) -> tuple[Path, str]:
    match = _FILE_REFERENCE.fullmatch(reference)
    if match is None or not _is_file(path := Path(match["path"])):
        raise InvalidConnector(
            "the reference to the secret names no file on this machine",
            remedy="run this where the worker's secrets file is, or pass a function that writes the secret",
            # What is no reference may be the secret.
            place=reference if is_reference(reference) else None,
        )
    return path, match["key"]


def _is_file(path: Path) -> bool:
    with _typed(path):
        return path.is_file()


def _with_entry(text: str, key: str, value: str) -> str:
    line = f"{key}={_escape(value)}"
    # A line of a properties file goes on behind a backslash at its end.
    entry = re.compile(rf"^[ \t]*{re.escape(key)}[ \t]*[=:](?:[^\\\n]|\\[\s\S])*$", re.MULTILINE)
    replaced, count = entry.subn(lambda _: line, text)
    if count:
        return replaced
    end = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{end}{line}\n"


@contextmanager
def _typed(path: Path, *, may: str = "replace") -> Iterator[None]:
    try:
        yield
    except PermissionError as error:
        raise InvalidConnector(
            f"this user may not {may} the secrets file as it is: {error.strerror}",
            remedy="run this as the file's owner, a member of its group, or as root",
            place=str(path),
        ) from error


def revealed(value: str | SecretStr) -> str:
    """Return a password in clear text, to send it on."""
    return value.get_secret_value() if isinstance(value, SecretStr) else value


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidConnector(
            f"secret name {name[:80]!r} is not a valid name",
            remedy="use letters, digits, dashes, underscores",
        )


def _checked_path(path: Path) -> Path:
    # A colon ends the path inside ${file:path:key}; a brace ends the reference.
    if any(character in str(path) for character in ":{}"):
        raise InvalidConnector(
            "a secrets file's path holds a colon or a brace",
            remedy="choose a directory whose path has none",
            place=str(path),
        )
    return path


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _written(path, text) as temporary:
        os.replace(temporary, path)


@contextmanager
def _written(path: Path, text: str, *, like: os.stat_result | None = None) -> Iterator[Path]:
    """Write a file's replacement next to it, with the same owner; it is removed afterwards, unless it was moved."""
    # mkstemp creates with mode 0600: the secret is at no moment readable by others.
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="latin-1") as file:
            if like is not None:
                os.fchown(handle, like.st_uid, like.st_gid)
                os.fchmod(handle, like.st_mode & 0o7777)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        yield Path(temporary)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _escape(value: str) -> str:
    return "".join(_ESCAPED.get(character) or ascii_of(character) for character in value)


def ascii_of(character: str) -> str:
    """Return a character as a java properties file writes it, whatever its encoding."""
    if " " <= character <= "~":
        return character
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def _unescaped(value: str) -> str:
    """The value that a line of a properties file writes; two halves of a surrogate pair become one character."""
    text = _ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else _MEANT.get(match[2], match[2]), value)
    return text.encode("utf-16", "surrogatepass").decode("utf-16")
