"""Files of features: what may be in them, and one sentence for everything that may not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from dsui.data.feature_file import read_feature_file
from dsui.errors import DataError

FEATURES = np.arange(12, dtype=np.float32).reshape(4, 3)
LABELS = np.array([7, 3, 7, 3])


def npz(folder: Path, **arrays: Any) -> Path:
    np.savez(folder / "a.npz", **arrays)
    return folder / "a.npz"


def test_labels_of_any_kind_become_numbers_of_sorted_classes(tmp_path: Path) -> None:
    for labels, classes in ((LABELS, ("3", "7")), (np.array(["dog", "cat", "dog", "cat"]), ("cat", "dog"))):
        found = read_feature_file(npz(tmp_path, features=FEATURES, labels=labels))
        assert (found.classes, found.labels.tolist()) == (classes, [1, 0, 1, 0])  # type: ignore[union-attr]
        assert torch.equal(found.features, torch.from_numpy(FEATURES))


def test_all_three_formats_give_the_same(tmp_path: Path) -> None:
    names, split = ["a/ä.png", "b 1.png", "c.png", "d.png"], ["train", "test", "train", "train"]
    plain = npz(tmp_path, features=FEATURES, labels=LABELS, names=np.array(names), split=np.array(split))
    tensors = {
        "features": torch.from_numpy(FEATURES),
        "labels": torch.tensor([1, 0, 1, 0]),
        "split": torch.tensor([0, 1, 0, 0], dtype=torch.uint8),
        "names": torch.frombuffer(bytearray("\0".join(names).encode()), dtype=torch.uint8),
    }
    save_file(tensors, tmp_path / "a.safetensors", {"classes": json.dumps(["3", "7"])})
    files = [plain, tmp_path / "a.safetensors"]
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow, which reads parquet, is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"features": list(FEATURES), "label": LABELS, "name": names, "split": split}
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    wide = {f"f{number}": FEATURES[:, number] for number in range(3)}
    others = {name: values for name, values in columns.items() if name != "features"}
    parquet.write_table(pyarrow.table({**wide, **others}), tmp_path / "wide.parquet")
    for path in (*files, tmp_path / "a.parquet", tmp_path / "wide.parquet"):
        found = read_feature_file(path)
        assert torch.equal(found.features, torch.from_numpy(FEATURES)), path
        assert found.labels is not None
        assert found.split is not None
        assert (found.labels.tolist(), found.classes) == ([1, 0, 1, 0], ("3", "7")), path
        assert (found.names, found.split.tolist()) == (tuple(names), [False, True, False, False]), path


def with_nan() -> np.ndarray[Any, Any]:
    bad = FEATURES.copy()
    bad[2, 1] = np.nan
    return bad


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"labels": LABELS}, "holds no `features`"),
        ({"features": with_nan()}, "1 of 4 rows hold NaN or infinity, row 2 first; remove or correct them"),
        ({"features": FEATURES[0]}, r"have the shape \[3\]"),
        ({"features": FEATURES.astype(np.int64)}, "are int64; convert them to floats"),
        ({"features": FEATURES, "labels": LABELS[:3]}, r"have the shape \[3\] and there are 4 rows; give one"),
        ({"features": FEATURES, "labels": np.array(["x", "", "y", ""])}, "2 of 4 rows have an empty label; give each"),
        ({"features": FEATURES, "labels": np.array([1.0, np.nan, 2.0, 3.0])}, "some perhaps missing"),
        ({"features": FEATURES, "labels": LABELS, "classes": np.array(["x", "y"])}, "run from 3 to 7"),
        ({"features": FEATURES, "names": np.array(["a", "b", "a", "c"])}, "'a' occurs twice among its names"),
        ({"features": FEATURES, "names": np.array(["a", "b"])}, "2 names and 4 rows"),
        ({"features": FEATURES, "split": np.array(["train", "validation", "test", "test"])}, "must say train or test"),
        ({"features": np.array([{"a": 1}, {}], dtype=object)}, "arrays of numbers or text and no objects"),
    ],
)
def test_what_cannot_be_used_is_told_in_a_sentence(tmp_path: Path, arrays: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        read_feature_file(npz(tmp_path, **arrays))


def test_a_label_that_is_missing_in_parquet_is_counted(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow, which reads parquet, is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"features": list(FEATURES), "label": ["a", None, "b", None]})
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataError, match="2 of 4 rows have no label"):
        read_feature_file(tmp_path / "a.parquet")


@pytest.mark.parametrize("name", ["a.safetensors", "a.npz"])
def test_a_file_that_is_cut_off_is_told(tmp_path: Path, name: str) -> None:
    save_file({"features": torch.rand(50, 8)}, tmp_path / "a.safetensors")
    npz(tmp_path, features=FEATURES)
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-20])
    with pytest.raises(DataError, match="write it"):
        read_feature_file(tmp_path / name)


def test_other_endings_and_missing_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"these end in \.safetensors, \.npz, \.parquet"):
        read_feature_file(tmp_path / "a.pt")
    with pytest.raises(DataError, match="is missing; write it with `dsui embed`"):
        read_feature_file(tmp_path / "a.npz")


def test_a_file_that_was_written_again_is_read_again(tmp_path: Path) -> None:
    assert read_feature_file(npz(tmp_path, features=FEATURES)).features.sum() == FEATURES.sum()
    assert read_feature_file(npz(tmp_path, features=np.vstack([FEATURES, FEATURES]))).features.shape == (8, 3)
