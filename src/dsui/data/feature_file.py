"""Files of features: vectors [N, M] that some network gave for images, with their labels and names.

    .safetensors   `features` [N, M], `labels` [N] integers; `names` and `split` as `dsui embed` writes them
    .npz           `features` [N, M], `labels` [N] integers or text; `names` [N] and `split` [N] text
    .parquet       columns `features` (lists of numbers) or one column of numbers for each feature; `labels` or
                   `label`, `names` or `name`, `split`

All but the features may be missing. `split` says "train" or "test" of each row; in .safetensors it is 0 or 1. Names in
.safetensors are bytes, UTF-8 with a zero byte between two names. Its metadata may hold `classes`, a JSON list of names
for the labels 0, 1, .., and `embedding`, which says what made the features (`dsui.runs.embedding`). Nothing in such a
file is ever unpickled.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from dsui.checks import check_installed
from dsui.errors import DataError
from dsui.excerpt import excerpt, shorten
from dsui.plain_json import load_json
from dsui.regular_file import check_regular

EMBEDDING = "embedding"
"""Key in the metadata of a file of features, and of the weights of a run on it: what made the features, as JSON."""
ENDINGS = (".safetensors", ".npz", ".parquet")
PARTS = ("train", "test")
BLOCK = 1 << 16
"""Rows that are looked through at once."""


@dataclass(frozen=True, eq=False)
class FeatureFile:
    """What a file holds, checked: finite features [N, M], and what is known of its rows."""

    path: Path
    features: Tensor
    """[N, M] of any floating-point type, on the disk until they are used where the file allows it."""
    labels: Tensor | None
    """[N] int64."""
    classes: tuple[str, ...]
    names: tuple[str, ...] | None
    split: Tensor | None
    """[N] bool, whether a row is for test."""
    embedding: str | None
    """JSON, see `dsui.runs.embedding`."""

    def name_of(self, row: int) -> str:
        """A row's own name, or the file's with the number of the row."""
        return f"{self.path}:{row}" if self.names is None else self.names[row]


def read_feature_file(path: Path) -> FeatureFile:
    """The file, or a DataError that says what is wrong with it. A file that has not changed is not read again."""
    try:
        status = path.stat()
    except OSError:
        return _read(path)
    return _read_once(path.absolute(), path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=2)
def _read_once(_absolute: Path, path: Path, _size: int, _time: int) -> FeatureFile:
    return _read(path)


def _read(path: Path) -> FeatureFile:
    read = {".safetensors": _read_safetensors, ".npz": _read_npz, ".parquet": _read_parquet}.get(path.suffix.lower())
    if read is None:
        raise DataError(f"{path} is no file of features by its name; these end in {', '.join(ENDINGS)}.")
    try:
        check_regular(path)
        found = read(path)
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing; write it with `dsui embed`, or correct the path.") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or shorten(error)}); repair this.") from error
    features = _checked_features(path, found.get("features"))
    labels, classes = _checked_labels(path, found.get("labels"), found.get("classes"), len(features))
    return FeatureFile(
        path,
        features,
        labels,
        classes,
        _checked_names(path, found.get("names"), len(features)),
        _checked_split(path, found.get("split"), len(features)),
        found.get(EMBEDDING),
    )


def _read_safetensors(path: Path) -> dict[str, Any]:
    try:
        with safe_open(path, framework="pt") as content:
            metadata: dict[str, str] = content.metadata() or {}
            found: dict[str, Any] = {
                name: content.get_tensor(name)
                for name in ("features", "labels", "names", "split")
                if name in content.keys()  # noqa: SIM118
            }
    except SafetensorError as error:
        raise DataError(f"{path} is cut off or not a safetensors file ({shorten(error)}); write it again.") from error
    if "names" in found:
        try:
            found["names"] = found["names"].numpy().tobytes().decode().split("\0")
        except (TypeError, UnicodeDecodeError) as error:
            raise DataError(f"{path}: `names` are not UTF-8 bytes; write it again.") from error
    if "classes" in metadata:
        try:
            found["classes"] = load_json(metadata["classes"])
        except ValueError as error:
            raise DataError(f"{path}: `classes` in its metadata are not JSON; write it again.") from error
    return {**found, "embedding": metadata.get(EMBEDDING)}


def _read_npz(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as content:
            parts = ("features", "labels", "names", "split", "classes")
            return {name: content[name] for name in parts if name in content.files}
    except (ValueError, zipfile.BadZipFile, EOFError, KeyError) as error:
        raise DataError(
            f"{path} cannot be read ({shorten(error)}); write it with numpy.savez(path, features=..., labels=...), "
            "arrays of numbers or text and no objects."
        ) from error


def _read_parquet(path: Path) -> dict[str, Any]:
    check_installed("pyarrow", "files of features that end in .parquet", "parquet")
    import pyarrow as pa
    from pyarrow import parquet

    try:
        table = parquet.read_table(path)
    except pa.ArrowException as error:
        raise DataError(f"{path} is no whole parquet file ({shorten(error)}); write it again.") from error
    columns = dict(zip(table.column_names, table.columns, strict=True))
    found: dict[str, Any] = {}
    for name, other in (("labels", "label"), ("names", "name"), ("split", "split")):
        if (column := columns.pop(name, columns.pop(other, None))) is not None:
            found[name] = column.to_pylist()
    if "features" in columns:
        found["features"] = _listed(path, columns["features"].combine_chunks())
    else:
        numbers = [each.to_numpy() for each in columns.values() if pa.types.is_floating(each.type)]
        found["features"] = np.stack(numbers, 1) if numbers else None
    return found


def _listed(path: Path, column: Any) -> NDArray[Any]:
    """[N, M] of a column of lists, without making Python lists of them."""
    lengths = {len(row) for row in column[:1]} | set(column.value_lengths().unique().to_pylist())
    if len(lengths) != 1 or None in lengths:
        raise DataError(f"{path}: the lists in `features` have different lengths; write one of M numbers for each row.")
    flat: NDArray[Any] = column.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(len(column), -1)


def _checked_features(path: Path, found: Any) -> Tensor:
    if found is None:
        raise DataError(f"{path} holds no `features`; write them as an array [rows, numbers].")
    try:
        values = found if isinstance(found, Tensor) else torch.from_numpy(np.require(found, requirements=["C", "W"]))
    except TypeError as error:
        raise DataError(f"{path}: `features` are no numbers ({shorten(error)}); write floats.") from error
    if values.ndim != 2 or 0 in values.shape:
        raise DataError(
            f"{path}: `features` have the shape {list(values.shape)}; write [rows, numbers], one row or more."
        )
    if not values.is_floating_point():
        raise DataError(f"{path}: `features` are {str(values.dtype).removeprefix('torch.')}; convert them to floats.")
    bad, first = 0, None
    for start in range(0, len(values), BLOCK):
        wrong = (~values[start : start + BLOCK].isfinite()).any(1)
        if wrong.any():
            first = start + int(wrong.nonzero()[0]) if first is None else first
            bad += int(wrong.sum())
    if bad:
        raise DataError(
            f"{path}: {bad:,} of {len(values):,} rows hold NaN or infinity, row {first} first; remove or correct them."
        )
    return values


def _checked_labels(path: Path, found: Any, classes: Any, count: int) -> tuple[Tensor | None, tuple[str, ...]]:
    """Labels 0 .. C - 1 and the names of the classes; None and none for a file without labels."""
    if found is None:
        return None, ()
    values = found.numpy() if isinstance(found, Tensor) else np.asarray(found)
    if values.dtype.kind == "O":
        if missing := sum(each is None for each in values.tolist()):
            raise DataError(f"{path}: {missing:,} of {count:,} rows have no label; give each one, or remove the rows.")
        values = np.asarray([str(each) for each in values.tolist()])
    if values.dtype.kind == "f" and np.isfinite(values).all() and (values == values.round()).all():
        values = values.astype(np.int64)
    if values.dtype.kind not in "biuU":
        raise DataError(
            f"{path}: `labels` are {values.dtype}, some perhaps missing; give integers or text to all rows."
        )
    if values.dtype.kind == "U" and (empty := int((values == "").sum())):
        raise DataError(f"{path}: {empty:,} of {count:,} rows have an empty label; give each one, or remove the rows.")
    if values.shape != (count,):
        raise DataError(
            f"{path}: `labels` have the shape {list(values.shape)} and there are {count:,} rows; give one each."
        )
    if classes is None or values.dtype.kind == "U":
        every, labels = np.unique(values, return_inverse=True)
        return torch.from_numpy(labels.reshape(-1).astype(np.int64)), tuple(map(str, every.tolist()))
    names = _texts(path, "classes", classes)
    labels = values.astype(np.int64)
    if labels.min() < 0 or labels.max() >= len(names):
        raise DataError(
            f"{path}: labels run from {labels.min()} to {labels.max()} and there are {len(names)} classes; mend one."
        )
    return torch.from_numpy(labels), names


def _checked_names(path: Path, found: Any, count: int) -> tuple[str, ...] | None:
    if found is None:
        return None
    names = _texts(path, "names", found)
    if len(names) != count:
        raise DataError(f"{path} has {len(names):,} names and {count:,} rows; give each row one name.")
    return names


def _texts(path: Path, what: str, found: Any) -> tuple[str, ...]:
    """Different texts."""
    texts: Sequence[Any] = found.tolist() if isinstance(found, np.ndarray) else found
    if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
        raise DataError(f"{path}: `{what}` are no list of texts; write them again.")
    if len(set(texts)) < len(texts):
        seen: set[str] = set()
        twice = next(each for each in texts if each in seen or seen.add(each))  # type: ignore[func-returns-value]
        raise DataError(f"{path}: {excerpt(twice)} occurs twice among its {what}; give every one another name.")
    return tuple(texts)


def _checked_split(path: Path, found: Any, count: int) -> Tensor | None:
    if found is None:
        return None
    values = np.asarray(found)
    values = np.asarray([PARTS[int(each)] if each in {0, 1} else each for each in values.reshape(-1).tolist()])
    if values.shape != (count,) or not np.isin(values, PARTS).all():
        raise DataError(
            f"{path}: `split` must say train or test of each of the {count:,} rows; correct it or leave it out."
        )
    return torch.from_numpy(values == PARTS[1])


def classes_text(classes: Sequence[str]) -> str:
    """The names of classes as the metadata of a file of features hold them."""
    return json.dumps(list(classes))
