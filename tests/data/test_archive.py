"""Archives are unpacked whole and into their own folder, or not at all."""

from __future__ import annotations

import errno
import io
import shutil
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest

from dsui.data.download import unpack
from dsui.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path


def write_archive(path: Path, *names: str) -> Path:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as contents:
            for name in names:
                contents.writestr(name, "x" * 5000)
    else:
        with tarfile.open(path, "w:gz") as tar:
            for name in names:
                member = tarfile.TarInfo(name)
                member.size = 5000
                tar.addfile(member, io.BytesIO(b"x" * 5000))
    return path


@pytest.fixture(params=["set.zip", "set.tar.gz"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    path: Path = tmp_path / "root" / request.param
    return path


def test_the_folder_appears_with_all_its_files(archive: Path) -> None:
    write_archive(archive, "set/a", "set/b/c")
    unpack(archive, archive.parent / "set")
    assert (archive.parent / "set" / "b" / "c").stat().st_size == 5000
    assert {path.name for path in archive.parent.iterdir()} == {archive.name, "set"}


@pytest.mark.parametrize("name", ["../outside", "set/../../outside"])
def test_nothing_is_written_outside(archive: Path, name: str) -> None:
    write_archive(archive, "set/a", name)
    with pytest.raises(DataError, match="outside"):
        unpack(archive, archive.parent / "set")
    assert [path.name for path in archive.parent.iterdir()] == [archive.name]
    assert [path.name for path in archive.parent.parent.iterdir()] == ["root"]


def test_a_link_to_the_outside_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "set.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        link = tarfile.TarInfo("set/link")
        link.type, link.linkname = tarfile.SYMTYPE, "../../outside"
        tar.addfile(link)
    with pytest.raises(DataError, match="damaged"):
        unpack(path, tmp_path / "set")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kept", [20, -30])
def test_a_broken_archive_leaves_nothing(archive: Path, kept: int) -> None:
    write_archive(archive, "set/a", "set/b")
    archive.write_bytes(archive.read_bytes()[:kept])
    with pytest.raises(DataError, match="is damaged"):
        unpack(archive, archive.parent / "set")
    assert list(archive.parent.iterdir()) == [archive]


def test_a_full_disk_is_told_as_such_and_leaves_nothing(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    write_archive(archive, "set/a")
    monkeypatch.setattr(shutil, "copyfileobj", full)
    monkeypatch.setattr(tarfile, "copyfileobj", full)
    with pytest.raises(DataError, match=r"cannot be unpacked \(No space left on device\); make room"):
        unpack(archive, archive.parent / "set")
    assert list(archive.parent.iterdir()) == [archive]


def test_another_archive_is_told_by_its_folder(archive: Path) -> None:
    write_archive(archive, "other/a")
    with pytest.raises(DataError, match="holds no folder set"):
        unpack(archive, archive.parent / "set")
    assert list(archive.parent.iterdir()) == [archive]
