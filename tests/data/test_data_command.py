"""`dsui data list | get | check` as a user meets them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from official_files import random_pixels, write_cifar10, write_svhn
from PIL import Image
from typer.testing import CliRunner

from dsui.cli.data import data_app
from dsui.data import download, registry
from dsui.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(data_app, [str(argument) for argument in arguments], env={"COLUMNS": "100"})


@pytest.mark.parametrize(("command", "verb"), [("list", "List"), ("get", "Fetch"), ("check", "Verify")])
def test_help_begins_with_a_verb_and_ends_with_an_example(command: str, verb: str) -> None:
    text = run(command, "--help").output
    assert verb in text
    assert f"Example: dsui data {command}" in text


def test_list_shows_what_there_is_and_what_is_there(tmp_path: Path) -> None:
    write_svhn(tmp_path / "test_32x32.mat", random_pixels(32, 32, 3, 1), [1])
    result = run("list", "--root", tmp_path)
    assert result.exit_code == 0
    for word in (*registry.PUBLISHED, "73,257", "3x64x64", "MIT", "ufldl.stanford.edu", "folder:PATH"):
        assert word in result.output
    rows = {row["name"]: row for row in json.loads(run("list", "--root", tmp_path, "--json").output)}
    assert rows["svhn"]["present"] == ["test"]
    assert rows["cifar10"]["present"] == []
    assert rows["digits"]["present"] == ["train", "test"]
    assert rows["cifar100"]["images"] == {"train": 50000, "test": 10000}


def test_check_of_a_sound_set_succeeds_and_of_a_wrong_one_fails(tmp_path: Path) -> None:
    result = run("check", "digits")
    assert result.exit_code == 0
    assert "0.3047" in result.output
    write_cifar10(tmp_path)
    result = run("check", "cifar10", "--root", tmp_path)
    assert isinstance(result.exception, DataError)
    assert "train: it holds 20 images instead of 50,000" in str(result.exception)


def test_check_prints_json_for_a_program() -> None:
    report = json.loads(run("check", "digits", "--json").stdout)
    assert report["problems"] == []
    assert report["splits"][0]["per_class"]["7"] == 100


def test_check_of_a_folder_counts_classes_and_skipped_files(tmp_path: Path) -> None:
    for split, count in (("train", 2), ("test", 1)):
        folder = tmp_path / split / "[ant]"  # brackets are markup elsewhere
        folder.mkdir(parents=True)
        for number in range(count):
            Image.new("RGB", (40, 30)).save(folder / f"{number}.png")
    (tmp_path / "test" / "[ant]" / "bad.jpg").touch()
    result = run("check", f"folder:{tmp_path}")
    assert isinstance(result.exception, DataError)
    assert "bad.jpg" in str(result.exception)
    result = run("check", f"folder:{tmp_path}", "--skip-bad")
    assert result.exit_code == 0
    for words in ("[ant]: 2", "[ant]: 1", "40x30", "test: 1 files skipped", "bad.jpg: the file is empty"):
        assert words in result.output


def test_get_says_what_to_do_for_a_wrong_name_and_an_embedded_set() -> None:
    result = run("get", "cifar11")
    assert isinstance(result.exception, DataError)
    assert "did you mean cifar10?" in str(result.exception)
    assert "nothing to fetch" in run("get", "photos").output


def test_get_checks_what_it_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetched(*_: object) -> list[str]:
        write_svhn(tmp_path / "test_32x32.mat", random_pixels(32, 32, 3, 1), [1])
        return ["test_32x32.mat"]

    monkeypatch.setattr(download, "get", fetched)
    result = run("get", "svhn", "--root", tmp_path)
    assert "Fetched test_32x32.mat" in result.output
    assert "states no checksum" in result.output
    assert isinstance(result.exception, DataError)
    assert "instead of 26,032" in str(result.exception)
