"""`dsui data list | get | check` as a user meets them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from dsui.cli.data import data_app
from dsui.data import download, registry
from dsui.errors import DataError
from tests.support.official_files import random_pixels, write_cifar10, write_svhn

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
    for word in (*registry.DATASETS, "73,257", "3x64x64", "MIT", "ufldl.stanford.edu", "folder:PATH"):
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
    result = run("check", f"folder:{tmp_path}", "--skip-bad")
    assert result.exit_code == 0
    for words in ("[ant]: 2", "[ant]: 1", "40x30", "test: 1 files skipped", "bad.jpg: the file is empty"):
        assert words in result.output


@pytest.mark.parametrize(
    ("sizes", "modes", "sentence"),
    [
        ([(8, 8), (8, 8)], ("L", "L"), "train: all of 8x8 pixels on disk, mode L."),
        ([(40, 30), (8, 9)], ("RGB", "L"), "train: of 8x9 to 40x30 pixels on disk, modes L, RGB."),
    ],
)
def test_check_of_a_folder_tells_the_files_as_they_are(
    tmp_path: Path, sizes: list[tuple[int, int]], modes: tuple[str, str], sentence: str
) -> None:
    (tmp_path / "train" / "ant").mkdir(parents=True)
    for number, (size, mode) in enumerate(zip(sizes, modes, strict=True)):
        Image.new(mode, size).save(tmp_path / "train" / "ant" / f"{number}.png")
    told = run("check", f"folder:{tmp_path}").output
    assert sentence in told
    assert "3x32x32" not in told


def test_check_of_a_folder_lists_twenty_unreadable_files_and_counts_the_others(tmp_path: Path) -> None:
    (tmp_path / "train" / "ant").mkdir(parents=True)
    Image.new("RGB", (40, 30)).save(tmp_path / "train" / "ant" / "good.png")
    for number in range(23):
        (tmp_path / "train" / "ant" / f"bad-{number:02}.png").touch()
    result = run("check", f"folder:{tmp_path}")
    assert isinstance(result.exception, DataError)  # which exits with 1
    assert "(train: 23 of 24 files cannot be read); repair or remove these files" in str(result.exception)
    assert "leave them out with --skip-bad" in str(result.exception)
    assert result.stdout.count("the file is empty") == 20
    assert "bad-19.png: the file is empty" in result.stdout
    assert "and 3 more" in result.stdout
    document = run("check", f"folder:{tmp_path}", "--json")
    assert isinstance(document.exception, DataError)
    assert len(json.loads(document.stdout)["splits"][0]["unreadable"]) == 23
    assert run("check", f"folder:{tmp_path}", "--quiet").stdout == ""


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
    assert "Not the published files, by their SHA-256: test_32x32.mat." in result.output
    assert isinstance(result.exception, DataError)
    assert "instead of 26,032" in str(result.exception)
