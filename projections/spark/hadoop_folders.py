"""Folders on any file system that Hadoop understands, which has no Python face."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from projections.spark.failures import described

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "file:"


def spelled(path: str | Path) -> str:
    """A path of this machine, or a URI of any file system that Spark is configured for, as Hadoop spells it."""
    text = str(path)
    if urlsplit(text).scheme not in ("", "file"):
        return text.rstrip("/")
    return f"{LOCAL}{Path(text.removeprefix(LOCAL)).expanduser().absolute()}"


def folders_in(spark: SparkSession, uri: str) -> list[str]:
    """The names of the folders in one; none where it was not made."""
    with described(uri):
        files, path = _opened(spark, uri)
        entries = files.listStatus(path) if files.exists(path) else []
        return sorted(one.getPath().getName() for one in entries if one.isDirectory())


def _opened(spark: SparkSession, uri: str) -> tuple[Any, Any]:
    java: Any = spark._jvm  # noqa: SLF001 - Hadoop's file systems have no Python face
    path = java.org.apache.hadoop.fs.Path(uri)
    return path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()), path  # noqa: SLF001
