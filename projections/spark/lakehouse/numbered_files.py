"""Files of one folder that are numbered in the order in which they were put there, each by one process and for good.

Delta's own log consists of such files. On this machine a hard link puts a file, and fails if it exists. Elsewhere
Delta's LogStore does, by the means of its file system. (In a local folder a LogStore checks first and then renames: of
two processes at once, both may believe that they were first.)
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from projections.errors import SparkFailed, TableStoreUnavailable
from projections.spark.failures import described
from projections.spark.hadoop_folders import LOCAL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SUFFIX = ".json"


class NumberedFiles(Protocol):
    """The files of a folder that need not be there yet; TableStoreUnavailable or SparkFailed where it is out of reach.

    Each consists of lines.
    """

    def newest(self, *, known: int = -1) -> int:
        """The highest number; -1 where there is no file. ``known`` is one that was there, from where to look."""

    def read(self, number: int) -> Sequence[str]:
        """The lines of a file."""

    def put(self, number: int, lines: Sequence[str]) -> bool:
        """Put a file, whole or not at all; False, and nothing is changed, where its number is taken."""

    def remove(self, number: int) -> None:
        """Remove a file, if it is there."""


def numbered_files(spark: SparkSession, uri: str) -> NumberedFiles:
    """Those of a folder at a Hadoop URI."""
    if uri.startswith(LOCAL):
        return LocalFiles(Path(uri.removeprefix(LOCAL)))
    return HadoopFiles(spark, uri)


@dataclass(frozen=True)
class LocalFiles(NumberedFiles):
    """Files of this machine, which need no Spark."""

    folder: Path

    def newest(self, *, known: int = -1) -> int:
        """By a look at the names of all."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return -1
        except OSError as error:
            raise self._unavailable(error) from error
        return max(map(_number, names), default=-1)

    def read(self, number: int) -> Sequence[str]:
        """All at once."""
        try:
            return self._file(number).read_text("utf-8").splitlines()
        except OSError as error:
            raise self._unavailable(error) from error

    def put(self, number: int, lines: Sequence[str]) -> bool:
        """Written under another name, and on the disk, before it gets its own."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._written(lines) as other:
                os.link(other, self._file(number))
        except FileExistsError:
            return False
        except OSError as error:
            raise self._unavailable(error) from error
        return True

    def remove(self, number: int) -> None:
        """By its name."""
        try:
            self._file(number).unlink(missing_ok=True)
        except OSError as error:
            raise self._unavailable(error) from error

    @contextlib.contextmanager
    def _written(self, lines: Sequence[str]) -> Iterator[Path]:
        """A file of these lines, under a name that is removed at the end of the block."""
        other = self.folder / f".{uuid.uuid4().hex}"
        try:
            with other.open("x", encoding="utf-8") as file:
                file.write("\n".join(lines))
                file.flush()
                os.fsync(file.fileno())
            yield other
        finally:
            other.unlink(missing_ok=True)

    def _file(self, number: int) -> Path:
        return self.folder / _name(number)

    def _unavailable(self, error: OSError) -> TableStoreUnavailable:
        return TableStoreUnavailable(
            f"the ledger cannot be read or written: {error.strerror}",
            remedy="make room, and let this process write there, on a file system with hard links. Nothing is lost",
            place=str(self.folder),
        )


@dataclass(frozen=True)
class HadoopFiles(NumberedFiles):
    """Files of any file system that Spark is configured for, through Delta's LogStore."""

    spark: SparkSession
    uri: str

    def newest(self, *, known: int = -1) -> int:
        """By a look at the names from the known one on."""
        from py4j.protocol import Py4JJavaError

        with described(self.uri):
            try:
                files = self._store().listFrom(self._path(max(known, 0)), self._settings())
            except Py4JJavaError as error:
                if error.java_exception.getClass().getSimpleName() == "FileNotFoundException":
                    return -1  # no folder yet
                raise
            newest = -1
            while files.hasNext():
                newest = max(newest, _number(files.next().getPath().getName()))
            return newest

    def read(self, number: int) -> Sequence[str]:
        """All at once."""
        with described(self.uri):
            lines = self._store().read(self._path(number), self._settings())
            return [lines.apply(position) for position in range(lines.size())]

    def put(self, number: int, lines: Sequence[str]) -> bool:
        """As Delta puts a commit to its log."""
        try:
            with described(self.uri):
                buffer = self._java.scala.collection.mutable.ListBuffer()
                for line in lines:
                    buffer.append(line)
                self._files().mkdirs(self._path(number).getParent())
                self._store().write(self._path(number), buffer.iterator(), False, self._settings())
        except SparkFailed as error:
            if "FileAlreadyExists" in str(error.__cause__):
                return False
            raise
        return True

    def remove(self, number: int) -> None:
        """By its name."""
        with described(self.uri):
            self._files().delete(self._path(number), False)

    @property
    def _java(self) -> Any:
        return self.spark._jvm  # noqa: SLF001 - neither Hadoop nor a LogStore has a Python face

    def _path(self, number: int) -> Any:
        return self._java.org.apache.hadoop.fs.Path(f"{self.uri}/{_name(number)}")

    def _settings(self) -> Any:
        return self.spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001

    def _files(self) -> Any:
        return self._path(0).getFileSystem(self._settings())

    def _store(self) -> Any:
        provider = getattr(self._java.org.apache.spark.sql.delta.storage, "LogStore$")
        return getattr(provider, "MODULE$").apply(self.spark._jsparkSession)  # noqa: SLF001


def _name(number: int) -> str:
    return f"{number:020}{_SUFFIX}"


def _number(name: str) -> int:
    """The number of a file; -1 for one of another kind, such as one that is not whole yet."""
    stem = name.removesuffix(_SUFFIX)
    return int(stem) if stem.isdecimal() and stem != name else -1
