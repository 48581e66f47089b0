"""The features of a data set under a backbone, written to a file of features (`dsui.data.feature_file`).

The header comes first, and features are appended batch by batch, so that only one batch is in memory. The file grows as
OUT.part and is renamed at the end. A part that was left by a kill goes on where it stopped if it is of the
same images, network and weights. Batches lie where they would have without the interruption, so the bits are the same.

The metadata hold the names of the classes and, under "embedding", what made the features: with it a run on the features
can predict images.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from dsui.data.feature_file import classes_text
from dsui.deploy.sources import EmbeddedImages
from dsui.errors import DsuiError, Stopped
from dsui.progress import Progress, silent
from dsui.runs.embedding import Embedder, Embedding
from dsui.runs.files import lock_or_refuse, not_written, remove_lock
from dsui.runtime.inputs import map_ahead

BATCH = 64
FORMAT = "dsui features 1"


def embed(
    images: EmbeddedImages,
    embedder: Embedder,
    embedding: Embedding,
    out: Path,
    batch: int = BATCH,
    progress: Progress = silent,
    warn: Callable[[str], None] = lambda _sentence: None,
) -> int:
    """Write the features of all images to `out`; gives how many rows an earlier, stopped call had written."""
    if out.suffix.lower() != ".safetensors":
        raise DsuiError(f"{out} must end in .safetensors; choose such a name.")
    part, lock = out.with_name(f"{out.name}.part"), out.with_name(f".{out.name}.lock")
    layout = _Layout(images, embedder.width, embedding)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        held = lock_or_refuse(lock)
    except BlockingIOError as error:
        raise DsuiError(f"{out} is being written by another process; wait until it ends.") from error
    except OSError as error:
        raise DsuiError(f"{out} cannot be written ({error.strerror}); choose another --out.") from error
    try:
        with _opened(part) as stream:
            begun = layout.rows_in(stream, batch)
            if begun is None:
                warn(f"{part} held features of other images, or of another network; they are computed anew.")
                begun = 0
            _append(stream, layout, images, embedder, begun, batch, progress)
        part.replace(out)
    except KeyboardInterrupt as error:
        raise Stopped(f"stopped; the features so far are in {part}, and the same command goes on with them.") from error
    except OSError as error:
        raise not_written(out, error) from error
    finally:
        if part.is_file() and not part.is_symlink() and part.stat().st_size <= len(layout.head):
            part.unlink()  # there is nothing to go on with
        remove_lock(held, lock)
    return begun


class _Layout:
    """The bytes before and after the features."""

    def __init__(self, images: EmbeddedImages, width: int, embedding: Embedding) -> None:
        self.rows, self.row_bytes = len(images.names), 4 * width
        names = "\0".join(images.names).encode()
        parts: list[tuple[str, str, list[int], int]] = []
        self.labels = b"" if images.labels is None else images.labels.numpy().tobytes()
        if images.labels is not None:
            parts.append(("labels", "I64", [self.rows], len(self.labels)))
        parts.append(("features", "F32", [self.rows, width], self.rows * self.row_bytes))
        split = b"" if images.split is None else images.split.to(torch.uint8).numpy().tobytes()
        if images.split is not None:
            parts.append(("split", "U8", [self.rows], len(split)))
        parts.append(("names", "U8", [len(names)], len(names)))
        self.tail = split + names
        header: dict[str, Any] = {
            "__metadata__": {
                "format": FORMAT,
                "embedding": embedding.to_text(),
                "images": hashlib.sha256(images.identity.encode(errors="surrogateescape")).hexdigest(),
            }
            | ({} if images.labels is None else {"classes": classes_text(images.classes)})
        }
        start = 0
        for name, kind, shape, length in parts:
            header[name] = {"dtype": kind, "shape": shape, "data_offsets": [start, start + length]}
            start += length
        text = json.dumps(header, separators=(",", ":")).encode()
        text = text.ljust(-(-len(text) // 8) * 8)
        self.head = len(text).to_bytes(8, "little") + text + self.labels

    def rows_in(self, stream: BinaryIO, batch: int) -> int | None:
        """How many rows of a begun file are whole and kept, a multiple of the batch. Other files are emptied, and the
        answer is None where they held anything but the beginning of this one."""
        stream.seek(0)
        if (found := stream.read(len(self.head))) != self.head:
            stream.truncate(0)
            stream.seek(0)
            stream.write(self.head)
            return 0 if self.head.startswith(found) else None
        rows = min((stream.seek(0, 2) - len(self.head)) // self.row_bytes, self.rows)
        rows = rows if rows == self.rows else rows // batch * batch
        stream.truncate(len(self.head) + rows * self.row_bytes)
        stream.seek(0, 2)
        return rows


def _append(
    stream: BinaryIO,
    layout: _Layout,
    images: EmbeddedImages,
    embedder: Embedder,
    begun: int,
    batch: int,
    progress: Progress,
) -> None:
    progress("embedding", begun, layout.rows)
    for pixels in _batches(images, embedder, begun, batch):
        stream.write(embedder(pixels).numpy().astype("<f4").tobytes())
        begun += len(pixels)
        progress("embedding", begun, layout.rows)
    stream.write(layout.tail)
    stream.flush()
    os.fsync(stream.fileno())


def _batches(images: EmbeddedImages, embedder: Embedder, begun: int, batch: int) -> Iterator[Tensor]:
    """uint8 [B, 3, size, size]; threads decode ahead."""
    read = map_ahead(range(begun, len(images.names)), lambda row: images.read(row, embedder.preparation), 2 * batch)
    waiting: list[np.ndarray[Any, np.dtype[np.uint8]]] = []
    for pixels in read:
        waiting.append(pixels)
        if len(waiting) == batch:
            yield torch.from_numpy(np.stack(waiting))
            waiting = []
    if waiting:
        yield torch.from_numpy(np.stack(waiting))


def _opened(part: Path) -> BinaryIO:
    """Open for reading and writing, made where it is missing; a link is refused."""
    if part.is_symlink():
        raise DsuiError(f"{part} is a link; remove it.")
    part.touch()
    return part.open("r+b")
