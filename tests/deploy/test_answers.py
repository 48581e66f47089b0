"""A folder of answers: what is kept through errors, what is refused, and what a job that goes on finds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from dsui.deploy import answers
from dsui.deploy.answers import Answered, opened, shown_name
from dsui.errors import DsuiError
from dsui.runtime.rows import PredictionRow

STRANGE = os.fsdecode(b"caf\xe9.png")
"""A name that is no UTF-8."""


def batches(*files: str) -> Iterator[list[PredictionRow]]:
    for file in files:
        yield [PredictionRow(file, label="a", probability=0.5, scores={"foreignness": 2.0}, decision="accept")]


def write(folder: Path, *files: str, model: str = "m") -> list[str]:
    """The files that were answered before."""
    with opened(folder, model, "") as found:
        list(found.write(batches(*files)))
        return [file for file in ("a.png", "b.png", STRANGE) if shown_name(Path(file)) in found.answered]


def test_a_job_that_goes_on_knows_every_name_and_adds_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "answers"
    assert write(folder, "a.png", STRANGE) == []
    assert write(folder, "b.png") == ["a.png", STRANGE]
    assert write(folder) == ["a.png", "b.png", STRANGE]
    table = pd.read_parquet(folder)
    assert table["file"].tolist() == ["a.png", "caf\\xe9.png", "b.png"]
    assert table["foreignness"].tolist() == [2.0] * 3


def test_names_are_found_among_many_and_others_are_not() -> None:
    many = Answered.of(f"{number}.png" for number in range(0, 2000, 2))
    assert [number for number in range(2000) if f"{number}.png" in many] == list(range(0, 2000, 2))
    assert "a" not in Answered.of([])


def test_after_an_error_every_row_that_was_given_on_is_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "BATCHES", 2)

    def failing() -> Iterator[list[PredictionRow]]:
        yield from batches("a.png", "b.png", "c.png")
        raise KeyboardInterrupt

    with opened(tmp_path, "m", "") as folder, pytest.raises(KeyboardInterrupt), closing(folder.write(failing())) as w:
        list(w)
    assert [each.name for each in sorted(tmp_path.glob("part*"))] == ["part-000000.parquet", "part-000001.parquet"]
    assert pd.read_parquet(tmp_path)["file"].tolist() == ["a.png", "b.png", "c.png"]


def test_another_model_other_files_and_damage_are_refused_and_nothing_changes(tmp_path: Path) -> None:
    folder = tmp_path / "answers"
    write(folder, "a.png")
    with pytest.raises(DsuiError, match="was begun with another model; choose a new --out"):
        write(folder, "b.png", model="n")
    with opened(folder, "m", ""), pytest.raises(DsuiError, match="is being written by another process"):
        write(folder, "b.png")
    (folder / "part-000001.parquet").write_bytes(b"cut")
    with pytest.raises(DsuiError, match=r"part-000001.parquet cannot be read .*; delete it, and its files"):
        write(folder, "b.png")
    other = tmp_path / "other"
    other.mkdir()
    (other / "diary.txt").touch()
    with pytest.raises(DsuiError, match="holds other files; choose a new --out"):
        write(other, "a.png")
    assert sorted(os.listdir(other)) in (["diary.txt"], [".lock", "diary.txt"])
    with pytest.raises(DsuiError, match="cannot be written"):
        write(other / "diary.txt", "a.png")
