"""Which file an image of a user's own folder came from, so that it can be opened, moved to another class or removed."""

from __future__ import annotations

from dsui.data.dataset import ImageSet, Subset
from dsui.data.folder import FolderSet
from dsui.data.foreign import Reshaped
from dsui.data.registry import folder_path


def origin(images: ImageSet, index: int) -> str | None:
    """The path of an image below PATH of `folder:PATH`, as in test/cat/7.png; None for a set that is no folder."""
    match images:
        case FolderSet():
            return images.files[index].relative_to(folder_path(images.name)).as_posix()
        case Subset():
            return origin(images.images, int(images.indices[index]))
        case Reshaped():
            return origin(images.images, index)
    return None
