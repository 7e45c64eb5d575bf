"""Class-data sharing: an archive of the classes that Spark's Java loads, which the next start maps into memory.

Java writes the archive when it ends, and its header last, so that a file with a header is complete. Such a file gets
the archive's name at the next start. Java itself ignores an archive that does not fit its version or its class path.
"""

from __future__ import annotations

import hashlib
import sys
from typing import TYPE_CHECKING

import pyspark

from lakeward.errors import StorageError

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward.spark.java import JavaHome

_HEADER = 0xF00BABA8.to_bytes(4, sys.byteorder)
"""The first bytes of an archive that a Java wrote at its end."""


def archive_options(directory: Path, java: JavaHome) -> str:
    """Return the options for the driver's JVM by which Java uses the archive, or writes it where there is none yet.

    The directory has an archive for each version of Java and of Spark.

    Raises:
        StorageError: the directory cannot be used.
    """
    archive = directory / f"spark-{pyspark.__version__}-java-{_fingerprint(java)}.jsa"
    part = archive.with_suffix(".part")  # Java deletes an older one before it writes
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _adopt(part, archive)
    except OSError as error:
        message = f"spark.class_archive: expected a directory that can be written, found {directory}: {error}"
        raise StorageError(message) from error
    use = f"-XX:SharedArchiveFile={archive}" if archive.exists() else f"-XX:ArchiveClassesAtExit={part}"
    # Java would name each class that it cannot archive; an archive that does not fit is not reported either.
    return f'"{use}" -Xlog:cds*=off'


def _adopt(part: Path, archive: Path) -> None:
    """Give the archive's name to what an earlier Java wrote, if that is complete."""
    if not part.exists():
        return
    with part.open("rb") as file:
        complete = file.read(len(_HEADER)) == _HEADER
    if complete:
        part.replace(archive)


def _fingerprint(java: JavaHome) -> str:
    """Return a name for this very Java: an update of the same version cannot use the archive."""
    release = java.path / "release"
    text = release.read_bytes() if release.is_file() else str(java.path).encode()
    return f"{java.version}-{hashlib.sha256(text).hexdigest()[:12]}"
