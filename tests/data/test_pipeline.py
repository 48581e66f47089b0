from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dsui.data.dataset import MemorySet
from dsui.data.folder import FolderSet, folder_set
from dsui.data.pipeline import Batch, ResidentLoader, StreamedLoader, epoch_batches, open_loader, plain_batches
from dsui.errors import DataError

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> FolderSet:
    """Two classes of ten small images each."""
    path, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    for name in ("cat", "dog"):
        (path / "train" / name).mkdir(parents=True)
        for number in range(10):
            pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(path / "train" / name / f"{number}.png")
    return folder_set(path, "train", size=8)


def collected(batches: list[Batch]) -> list[torch.Tensor]:
    return [torch.cat(parts) for parts in zip(*batches, strict=True)]


@pytest.mark.parametrize("workers", [0, 2])
def test_streamed_batches_equal_resident_ones(folder: FolderSet, workers: int) -> None:
    resident, streamed = ResidentLoader(folder, CPU), StreamedLoader(folder, CPU, workers)
    for epoch in (0, 1):
        order = list(epoch_batches(20, 6, seed=0, epoch=epoch))
        pairs = zip(resident.stream(order), streamed.stream(order), strict=True)
        count = 0
        for ours, theirs in pairs:
            assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
            count += 1
        assert count == 3
    assert torch.equal(collected(list(streamed.stream(plain_batches(20, 6))))[2], torch.arange(20))


def test_a_stream_that_was_left_can_be_started_again(folder: FolderSet) -> None:
    streamed = StreamedLoader(folder, CPU, workers=1)
    for _ in streamed.stream(plain_batches(20, 2)):
        break
    assert torch.equal(collected(list(streamed.stream(plain_batches(20, 6))))[2], torch.arange(20))


def test_batches_hold_the_images_and_labels_of_their_indices(folder: FolderSet) -> None:
    source = ResidentLoader(folder, CPU)
    for batch in source.stream(epoch_batches(20, 4, seed=3, epoch=0)):
        assert torch.equal(batch.images, folder.read(batch.indices))
        assert torch.equal(batch.labels, folder.labels[batch.indices])
        assert batch.images.dtype == torch.uint8


def test_a_set_larger_than_the_budget_is_streamed(folder: FolderSet) -> None:
    size = 20 * 3 * 8 * 8
    assert isinstance(open_loader(folder, CPU, memory_budget=size), ResidentLoader)
    streamed = open_loader(folder, CPU, memory_budget=size - 1, workers=0)
    assert isinstance(streamed, StreamedLoader)
    assert isinstance(open_loader(folder, CPU), ResidentLoader)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_bad_file_met_by_a_worker_is_one_sentence_that_names_it(tmp_path: Path, workers: int) -> None:
    (tmp_path / "train" / "cat").mkdir(parents=True)
    (tmp_path / "train" / "dog").mkdir()
    for name in ("cat", "dog"):
        Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(
            tmp_path / "train" / name / "a.png"
        )
    images = folder_set(tmp_path, "train", size=8)
    broken = tmp_path / "train" / "dog" / "a.png"
    broken.write_bytes(broken.read_bytes()[:2000])
    with pytest.raises(DataError, match=r"dog/a.png cannot be used .* repair or remove it") as caught:
        list(StreamedLoader(images, CPU, workers).stream(plain_batches(2, 2)))
    assert "\n" not in str(caught.value)


def test_an_epoch_is_a_permutation_that_depends_on_seed_and_epoch_alone() -> None:
    first = torch.cat(list(epoch_batches(1000, 50, seed=1, epoch=0)))
    assert torch.equal(first.sort().values, torch.arange(1000))
    assert torch.equal(first, torch.cat(list(epoch_batches(1000, 50, seed=1, epoch=0))))
    assert torch.equal(first[:930], torch.cat(list(epoch_batches(1000, 93, seed=1, epoch=0))))
    for seed, epoch in ((1, 1), (2, 0)):
        assert not torch.equal(first, torch.cat(list(epoch_batches(1000, 50, seed, epoch))))


def test_processes_share_each_batch_and_resuming_goes_on_where_it_stopped() -> None:
    whole = list(epoch_batches(103, 12, seed=0, epoch=4))
    assert len(whole) == 8
    ranks = [list(epoch_batches(103, 12, seed=0, epoch=4, rank=rank, world=3)) for rank in range(3)]
    for step, batch in enumerate(whole):
        assert torch.equal(torch.cat([rank[step] for rank in ranks]), batch)
    resumed = list(epoch_batches(103, 12, seed=0, epoch=4, start=5))
    assert all(torch.equal(a, b) for a, b in zip(resumed, whole[5:], strict=True))


def test_impossible_batches_are_named() -> None:
    for arguments, message in (
        ((10, 4, 0, 0, 0, 0, 3), "a batch of 4 cannot be shared equally by 3 processes"),
        ((3, 4, 0, 0), "3 samples do not fill a batch of 4"),
        ((3, 0, 0, 0), "batch must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            list(epoch_batches(*arguments))
    empty = MemorySet("none", ("a",), torch.empty(0, 1, 2, 2, dtype=torch.uint8), torch.empty(0, dtype=torch.int64))
    with pytest.raises(DataError, match="none holds no image"):
        open_loader(empty, CPU)
