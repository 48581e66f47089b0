"""Any folder of images as foreign ones: `--foreign folder:PATH`, at any depth, in whatever order the user keeps them.

Where PATH/test is a folder its images are meant, else all below PATH. A class is what the folder that directly holds an
image is called, which is what a warning of shared classes can know; an image directly in PATH is of the class "any".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from dsui.data.folder import FolderSet, missing_folder, sift
from dsui.data.image_files import image_files
from dsui.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

ANY = "any"


def foreign_folder(path: Path, size: int, channels: int, skip_bad: bool = False) -> FolderSet:
    """The images, of `size` x `size` pixels; `skip_bad` as in `folder.folder_set`."""
    top = path / "test" if (path / "test").is_dir() else path
    if not top.is_dir():
        raise missing_folder(top, "foreign images may lie in any folder, at any depth")
    files, skipped = sift(list(image_files([top])), channels, skip_bad)
    if not files:
        raise DataError(f"{top} holds no readable image; name a folder with foreign images in it or below.")
    names = [ANY if file.parent == top else file.parent.name for file in files]
    classes = tuple(sorted(set(names)))
    labels = torch.tensor([classes.index(name) for name in names], dtype=torch.int64)
    return FolderSet(f"folder:{path}", classes, labels, tuple(files), size, channels, tuple(skipped))
