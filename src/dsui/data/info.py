"""The facts about a published data set: how to read it, what it must contain, where it comes from.

The file of each data set states these facts once. `registry` lists them, `check` compares a local copy with them, and
`download` downloads the files they name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dsui.errors import DataError
from dsui.excerpt import shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from torch import Tensor

    from dsui.data.dataset import MemorySet


@dataclass(frozen=True)
class Split:
    """The official number of images and the mean of each channel, with pixels in [0, 1].

    `traces`: glob patterns below the root; a match of any of them means that the split exists, perhaps incomplete.
    """

    images: int
    means: tuple[float, ...]
    traces: tuple[str, ...] = ()


@dataclass(frozen=True)
class RemoteFile:
    """One file to download; the first address is the official one, the others are mirrors.

    `yields`: paths below the root that exist once the file is in place. `begins`: the first bytes of the file format,
    which distinguish the file from an error page. `unpacks_to`: the one folder that an archive holds. `checksum`:
    "sha256:..." or "md5:...", as the publisher or a project that many use states it; the file of the data set says who.
    `largest`: the bytes that it may have at most, its size where that is published. `members`: the checksums of files
    in the archive, by their paths below the root.
    """

    name: str
    addresses: tuple[str, ...]
    yields: tuple[str, ...]
    begins: bytes
    unpacks_to: str | None = None
    checksum: str | None = None
    largest: int = 1 << 30
    members: Mapping[str, str] = field(default_factory=dict)

    @property
    def published(self) -> Mapping[str, str]:
        """The checksums of files that stay on disk, by their paths below the root."""
        if self.unpacks_to is None and self.checksum is not None:
            return dict.fromkeys(self.yields, self.checksum)
        return self.members


@dataclass(frozen=True)
class DatasetInfo:
    """One data set. `load(root, split)` reads a split; downloads go to `folder` below the root.

    `load_some(root, split, choice)` reads only the images whose indices `choice` gives for their number. A set has it
    if each image is a file of its own, so that this is less work than to read the split.
    """

    name: str
    load: Callable[[Path, str], MemorySet]
    classes: int
    shape: tuple[int, int, int]
    splits: Mapping[str, Split]
    page: str
    licence: str
    folder: str = ""
    files: tuple[RemoteFile, ...] = ()
    load_some: Callable[[Path, str, Callable[[int], Tensor]], MemorySet] | None = None

    def present(self, root: Path) -> tuple[str, ...]:
        """The splits of which at least one file lies below `root`; all of them for a data set inside a package."""
        return tuple(
            name
            for name, split in self.splits.items()
            if not self.files or any(any(root.glob(trace)) for trace in split.traces)
        )


def missing_file(path: Path, name: str) -> DataError:
    return DataError(f"{path} is missing; run `dsui data get {name}`, or name the folder that holds it with --root.")


def damaged_file(path: Path, why: str, name: str) -> DataError:
    return DataError(f"{path} is damaged: {shorten(why)}; delete it and run `dsui data get {name}` again.")


def unreadable_file(path: Path, error: OSError) -> DataError:
    return DataError(f"{path} cannot be read ({error.strerror}); repair this and try again.")


def missing_folder(folder: Path, advice: str) -> DataError:
    """For a folder that a user named; a relative path is shown with the folder it was looked for in."""
    where = "" if folder.is_absolute() else f" below {folder.cwd()}"
    return DataError(f"{folder} {'is not a folder' if folder.exists() else f'is missing{where}'}; {advice}.")
