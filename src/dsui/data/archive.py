"""Unpack a downloaded tar or zip archive: all of it or nothing, and nothing outside its own folder."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from dsui.errors import DataError


def unpack(archive: Path, folder: Path) -> None:
    """Make `folder` from the folder of the same name in `archive`.

    The files go to a scratch folder beside it first, so that an interruption or a full disk leaves no half of it.
    """
    try:
        with TemporaryDirectory(prefix=".unpacking-", dir=folder.parent, ignore_cleanup_errors=True) as scratch:
            if archive.suffix == ".zip":
                _unzip(archive, scratch)
            else:
                with tarfile.open(archive) as tar:
                    tar.extractall(scratch, filter="data")
            inner = Path(scratch) / folder.name
            if not inner.is_dir():
                raise DataError(f"{archive} holds no folder {folder.name}; delete it and download it again.")
            inner.rename(folder)
    except DataError:
        raise
    except Exception as error:  # tarfile, zipfile, gzip and zlib each have their own
        if isinstance(error, OSError) and error.errno:  # the disk's failure; gzip's OSError has no number
            raise DataError(f"{archive} cannot be unpacked ({error.strerror}); make room and try again.") from error
        raise DataError(f"{archive} is damaged ({error}); delete it and download it again.") from error


def _unzip(archive: Path, scratch: str) -> None:
    with zipfile.ZipFile(archive) as contents:
        for name in contents.namelist():
            if name.startswith("/") or ".." in PurePosixPath(name).parts:
                raise DataError(f"{archive} wants to write to {name}, outside its folder; delete it.")
        contents.extractall(scratch)  # noqa: S202 - names checked above
