"""The size that images of a folder get is that of most of its files."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from dsui.data.decode import Header, read_header
from dsui.data.folder_side import LOOKED_AT, Side, usual_side


def folder(path: Path, sizes: list[tuple[int, int]]) -> Path:
    for label in ("cat", "dog"):
        (path / "train" / label).mkdir(parents=True)
        for number, size in enumerate(sizes):
            Image.new("L", size).save(path / "train" / label / f"{number:05}.png")
    return path


@pytest.mark.parametrize(
    ("sizes", "most", "expected"),
    [
        ([(64, 64)], 224, Side(64, 64)),
        ([(8, 8)], 224, Side(8, 8)),
        ([(28, 28)], 64, Side(28, 28)),
        ([(500, 375)], 224, Side(224, 375)),
        ([(500, 375)], 64, Side(64, 375)),
        ([(90, 120)], 224, Side(64, 90)),
        ([(10, 10), (70, 100), (300, 200)], 224, Side(64, 70)),
        ([(10, 10), (300, 200)], 224, Side(10, 10)),
    ],
)
def test_it_is_the_median_of_the_shorter_sides(
    tmp_path: Path, sizes: list[tuple[int, int]], most: int, expected: Side
) -> None:
    assert usual_side(folder(tmp_path, sizes), most) == expected


def test_unreadable_files_are_passed_over(tmp_path: Path) -> None:
    path = folder(tmp_path, [(64, 64)] * 3)
    for file in sorted((path / "train" / "cat").iterdir()):
        file.write_bytes(b"ruined")
    assert usual_side(path, 224) == Side(64, 64)
    for file in sorted((path / "train" / "dog").iterdir()):
        file.write_bytes(b"ruined")
    assert usual_side(path, 224) == Side(32, 32)  # the error comes when the images are read


def test_of_many_files_some_are_read_from_every_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder(tmp_path, [(16, 16)] * 7)
    monkeypatch.setattr("dsui.data.folder_side.LOOKED_AT", 5)
    for file in (path / "train" / "dog").iterdir():
        Image.new("L", (96, 96)).save(file)
    looked: list[Path] = []

    def noted(file: Path) -> Header:
        looked.append(file)
        return read_header(file)

    monkeypatch.setattr("dsui.data.folder_side.read_header", noted)
    assert usual_side(path, 224).median == 16
    assert len(looked) <= 5 < LOOKED_AT
    assert {file.parent.name for file in looked} == {"cat", "dog"}
