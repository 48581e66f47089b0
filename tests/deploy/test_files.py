"""Which files are found, and how far ahead they are decoded."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsui.data.folder import image_files
from dsui.deploy.inputs import ahead


def test_folders_are_searched_at_any_depth_in_the_order_of_their_names(tmp_path: Path) -> None:
    names = ["b.png", "a.JPG", "deep/er/c.webp", "deep/a.tiff", "z.gif"]
    passed_over = ["notes.txt", ".hidden.png", ".cache/d.png", "deep/model.pt", "no-ending"]
    for name in [*names, *passed_over]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = [str(path.relative_to(tmp_path)) for path in image_files([tmp_path])]
    assert found == ["a.JPG", "b.png", "deep/a.tiff", "deep/er/c.webp", "z.gif"]


def test_a_file_that_is_named_is_taken_whatever_its_name(tmp_path: Path) -> None:
    named = [tmp_path / "notes.txt", tmp_path / ".hidden.png", tmp_path / "absent.png"]
    for path in named[:2]:
        path.touch()
    assert list(image_files(named)) == named


def test_links_are_followed_and_circles_end(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.png").touch()
    (tmp_path / "real" / "around").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "link").symlink_to(tmp_path / "real", target_is_directory=True)
    (tmp_path / "broken.png").symlink_to(tmp_path / "nowhere.png")
    found = [str(path.relative_to(tmp_path)) for path in image_files([tmp_path])]
    assert found == ["broken.png", "link/a.png"]
    assert list(image_files([tmp_path / "link"])) == [tmp_path / "link" / "a.png", tmp_path / "link/around/broken.png"]


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> Iterator[object]:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("dsui.deploy.inputs.os.scandir", refuse)
    assert list(image_files([tmp_path])) == [tmp_path]


def test_results_keep_the_order_of_their_items_though_threads_do_not() -> None:
    def slow_first(item: int) -> int:
        time.sleep(0.02 if item == 0 else 0)
        return item * item

    assert list(ahead(range(100), slow_first, 10)) == [item * item for item in range(100)]
    assert list(ahead([], slow_first, 10)) == []


def test_no_more_items_are_taken_than_the_window_allows() -> None:
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for item in range(1000):
            taken += 1
            yield item

    for used, _ in enumerate(ahead(items(), str, 7), 1):
        assert taken <= used + 7
    assert taken == 1000


def test_an_error_comes_out_where_its_item_stood_and_ends_the_threads() -> None:
    before = threading.active_count()
    made = ahead([1, 2, 0, 4], lambda item: 1 / item, 4)
    assert [next(made), next(made)] == [1, 0.5]
    with pytest.raises(ZeroDivisionError):
        next(made)
    assert threading.active_count() == before


def test_leaving_early_ends_the_threads() -> None:
    before = threading.active_count()
    made = ahead(range(1000), str, 50)
    next(made)
    made.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before
