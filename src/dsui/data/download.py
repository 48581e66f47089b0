"""Fetch a published data set: mirrors in turn, and nothing half-written that could be taken as whole.

Bytes gather in NAME.HOST.part, one for each host, since only one host's bytes surely belong together. A complete part
whose first bytes and, where its publisher states one, md5 are right is renamed to NAME. Where no checksum is published,
`check` of the data is the proof.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dsui.data.archive import unpack
from dsui.data.transfer import TransferError, transfer
from dsui.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from dsui.data.progress import Progress
    from dsui.data.published import Published, RemoteFile

TIMEOUT = 30.0  # seconds without a byte


def get(entry: Published, root: Path, progress: Progress, timeout: float = TIMEOUT) -> list[str]:
    """Fetch and unpack what of a data set is not yet below `root`; the names of the files fetched."""
    fetched = []
    for file in entry.files:
        absent = [path for path in file.yields if not (root / path).exists()]
        if not absent:
            continue
        target = root / entry.folder / file.name
        folder = root / file.unpacks_to if file.unpacks_to else None
        if folder and folder.exists():
            raise DataError(f"{root / absent[0]} is missing; move {folder} away and run `dsui data get {entry.name}`.")
        here = target.exists()
        if here and (problem := _problem(target, file)):
            raise DataError(f"{target} is not the published file: {problem}; delete it and try again.")
        if not here:
            fetch(file, target, entry.name, progress, timeout)
            fetched.append(file.name)
        if folder:
            unpack(target, folder)
            if not here:
                target.unlink()
    return fetched


def fetch(file: RemoteFile, target: Path, name: str, progress: Progress, timeout: float = TIMEOUT) -> None:
    """Bring `file` of the data set `name` to `target` from the first address that delivers it whole."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{target.parent} cannot be made ({error.strerror}); choose another --root.") from error
    failures = []
    for address in file.addresses:
        part = target.with_name(f"{target.name}.{urlsplit(address).netloc.replace(':', '-')}.part")
        try:
            transfer(address, part, file.name, progress, timeout)
        except TransferError as error:
            failures.append(f"{address}: {error}")
            continue
        if problem := _problem(part, file):
            part.unlink()
            failures.append(f"{address}: {problem}")
            continue
        part.replace(target)
        for leftover in target.parent.glob(f"{target.name}.*.part"):
            leftover.unlink()
        return
    raise DataError(
        f"{file.name} could not be downloaded ({'; '.join(failures)}); try again later, "
        f"or put the file into {target.parent} by hand and run `dsui data get {name}`."
    )


def _problem(path: Path, file: RemoteFile) -> str | None:
    with path.open("rb") as stream:
        if stream.read(len(file.begins)) != file.begins:
            return "it does not begin as its format does"
        stream.seek(0)
        digest = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if file.md5 and digest != file.md5:
        return f"its md5 is {digest}, published is {file.md5}"
    return None
