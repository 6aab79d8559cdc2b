"""Where an archive lies: a folder a topic, on any Hadoop path; a local one is its owner's alone."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eventstore.identifiers import check_topic
from projections.errors import ArchiveUnusable
from projections.spark.hadoop_folders import LOCAL, folders_in, spelled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class ArchiveFolder:
    """The folder of an archive, as Hadoop spells it; made by ``of``."""

    uri: str

    @staticmethod
    def of(path: str | Path) -> ArchiveFolder:
        """The folder at a path of this machine, or at a URI of any file system that Spark is configured for."""
        return ArchiveFolder(spelled(path))

    def of_topic(self, topic: str) -> str:
        """The folder of one topic; InvalidIdentifier for what is no name of one."""
        return f"{self.uri}/{check_topic(topic)}"

    def make(self) -> None:
        """Make a local folder, or check that only its owner can enter it; ArchiveUnusable."""
        if not self.uri.startswith(LOCAL):
            return
        folder = Path(self.uri.removeprefix(LOCAL))
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = folder.stat()
        except OSError as error:
            raise _unusable(f"cannot be made: {error.strerror}", folder) from error
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise _unusable("can be entered by others than its owner", folder)

    def topics(self, spark: SparkSession) -> list[str]:
        """The names of its folders; none where it was not made."""
        return folders_in(spark, self.uri)


def _unusable(why: str, folder: Path) -> ArchiveUnusable:
    return ArchiveUnusable(
        f"the archive's folder {why}",
        remedy="give a folder that this user can write. One that is there needs mode 0700 (chmod 700)",
        place=str(folder),
    )
