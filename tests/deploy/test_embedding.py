"""Files of features: what is in them, that only a batch is in memory, and that a kill costs a batch and no bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from dsui.backbones.named import NamedBackbone
from dsui.backbones.own import as_backbone
from dsui.backbones.preparation import Preparation
from dsui.data.feature_file import read_feature_file
from dsui.deploy.embedding import embed
from dsui.deploy.sources import EmbeddedImages, images_to_embed
from dsui.errors import DsuiError, Stopped
from dsui.runs.embedding import Embedder, Embedding
from tests.support.tiny_networks import SIDE, Counted, photos

BATCH = 4
PREPARATION = Preparation(size=SIDE, edge=36, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4))


def named(network: nn.Module | None = None) -> NamedBackbone:
    return NamedBackbone(as_backbone(Counted() if network is None else network, (3, SIDE, SIDE)), PREPARATION)


def write(images: EmbeddedImages, out: Path, loaded: NamedBackbone | None = None, batch: int = BATCH) -> int:
    loaded = named() if loaded is None else loaded
    embedding = Embedding.of("own.networks:net", None, loaded)
    return embed(images, Embedder(loaded, torch.device("cpu")), embedding, out, batch)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return photos(tmp_path_factory.mktemp("images"), train=5, test=2)


@pytest.fixture(scope="module")
def images(folder: Path) -> EmbeddedImages:
    return images_to_embed(f"folder:{folder}")


@pytest.fixture(scope="module")
def whole(images: EmbeddedImages, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "a.safetensors"
    assert write(images, out) == 0
    return out


def test_the_file_has_features_labels_names_classes_and_split(whole: Path, images: EmbeddedImages) -> None:
    found = read_feature_file(whole)
    assert found.classes == ("blue", "green", "red")
    assert found.names is not None
    assert found.labels is not None
    assert found.split is not None
    assert found.names[0] == "train/blue/0.png"
    assert [found.classes[label] for label in found.labels] == [name.split("/")[1] for name in found.names]
    assert found.split.tolist() == [name.startswith("test/") for name in found.names]
    network = named().backbone.eval()
    for row in (0, 7, 20):
        pixels = torch.from_numpy(images.read(row, PREPARATION)).float() / 255
        mean, std = (torch.tensor(values)[:, None, None] for values in (PREPARATION.mean, PREPARATION.std))
        expected = network(((pixels - mean) / std)[None])[0]
        assert torch.allclose(found.features[row], expected, atol=1e-5)  # batches of four and of one
    assert not list(whole.parent.glob("*.part"))


class Stops(nn.Module):
    """The network, until it has seen so many images."""

    def __init__(self, images: int, error: type[BaseException]) -> None:
        super().__init__()
        self.network, self.left, self.error = Counted(), images, error
        self.out_features = 6

    def forward(self, images: Tensor) -> Tensor:
        if self.left <= 0:
            raise self.error
        self.left -= len(images)
        features: Tensor = self.network(images)
        return features


@pytest.mark.parametrize("seen", [0, 9, 20])
def test_a_stopped_call_goes_on_to_the_same_bytes(
    seen: int, images: EmbeddedImages, whole: Path, tmp_path: Path
) -> None:
    out, stopping = tmp_path / "a.safetensors", named(Stops(10**6, KeyboardInterrupt))
    usual = Embedding.of("own.networks:net", None, named())
    stopping.backbone.model.left = seen  # type: ignore[union-attr]
    with pytest.raises(Stopped, match="the same command goes on with them"):
        embed(images, Embedder(stopping, torch.device("cpu")), usual, out, BATCH)
    assert not out.exists()
    begun = write(images, out)
    assert (
        begun == -(-seen // BATCH) * BATCH if seen < len(images.names) else begun == len(images.names) // BATCH * BATCH
    )
    assert out.read_bytes() == whole.read_bytes()
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("cut", [1, 100, 300, 700])
def test_a_file_that_a_power_cut_left_anywhere_is_finished_to_the_same_bytes(
    cut: int, images: EmbeddedImages, whole: Path, tmp_path: Path
) -> None:
    content = whole.read_bytes()
    (tmp_path / "a.safetensors.part").write_bytes(content[: len(content) * cut // 1000])
    write(images, tmp_path / "a.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == content


def test_what_another_network_began_begins_anew_and_that_is_told(
    images: EmbeddedImages, whole: Path, tmp_path: Path
) -> None:
    other = named()
    with torch.no_grad():
        next(other.backbone.parameters()).mul_(2)
    part = tmp_path / "a.safetensors.part"
    part.write_bytes(whole.read_bytes()[:-300])
    told: list[str] = []
    embedding, embedder = Embedding.of("own.networks:net", None, other), Embedder(other, torch.device("cpu"))
    assert embed(images, embedder, embedding, tmp_path / "a.safetensors", BATCH, warn=told.append) == 0
    assert told == [f"{part} held features of other images, or of another network; they are computed anew."]
    fresh = tmp_path / "b.safetensors"
    write(images, fresh, other)
    assert (tmp_path / "a.safetensors").read_bytes() == fresh.read_bytes() != whole.read_bytes()


def test_only_two_batches_of_images_are_read_ahead(images: EmbeddedImages, tmp_path: Path) -> None:
    """However many images there are: none is decoded long before the network needs it."""
    network, furthest, seen = Counted(), [0], [0]

    class Watched(nn.Module):
        out_features = 6

        def forward(self, pixels: Tensor) -> Tensor:
            found: Tensor = network(pixels)
            seen[0] += len(pixels)
            return found

    def image(row: int) -> Image.Image:
        furthest[0] = max(furthest[0], row - seen[0])
        return images.image(row)

    loaded = named(Watched())
    embedding = Embedding.of("own.networks:net", None, loaded)
    seen[0] = 0
    watched = EmbeddedImages(images.names, images.classes, images.labels, images.split, images.identity, image)
    embed(watched, Embedder(loaded, torch.device("cpu")), embedding, tmp_path / "a.safetensors", BATCH)
    assert furthest[0] <= 3 * BATCH


def test_a_folder_without_classes_gives_features_without_labels(folder: Path, tmp_path: Path) -> None:
    loose = images_to_embed(f"folder:{folder / 'test' / 'red'}")
    write(loose, tmp_path / "a.safetensors")
    found = read_feature_file(tmp_path / "a.safetensors")
    assert (found.labels, found.classes, found.split) == (None, (), None)
    assert found.names == ("0.png", "1.png")


def test_a_published_set_is_embedded_with_both_splits(tmp_path: Path) -> None:
    found = images_to_embed("digits-256")
    assert found.split is not None
    assert set(found.split.tolist()) == {False, True}
    assert found.image(0).mode == "RGB"
    del tmp_path


def test_features_that_are_no_numbers_are_told_and_the_file_is_not_made(images: EmbeddedImages, tmp_path: Path) -> None:
    broken = named()
    with torch.no_grad():
        next(broken.backbone.parameters()).fill_(float("nan"))
    with pytest.raises(DsuiError, match="the backbone gives NaN or infinity"):
        write(images, tmp_path / "a.safetensors", broken)
    assert not list(tmp_path.iterdir())


def test_what_made_the_features_is_kept_and_checked(whole: Path) -> None:
    found = read_feature_file(whole)
    assert found.embedding is not None
    embedding = Embedding.from_text(found.embedding)
    assert Embedding.from_text(embedding.to_text()) == embedding
    kept = Preparation.of(embedding.size, embedding.mean, embedding.std, embedding.preparation)
    assert kept == PREPARATION
    with pytest.raises(ValueError, match="embedding"):
        Embedding.from_text('{"backbone": 3}')


def test_a_link_in_place_of_the_part_is_refused(images: EmbeddedImages, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("keep")
    (tmp_path / "a.safetensors.part").symlink_to(tmp_path / "precious")
    with pytest.raises(DsuiError, match="is a link; remove it"):
        write(images, tmp_path / "a.safetensors")
    assert (tmp_path / "precious").read_text() == "keep"
