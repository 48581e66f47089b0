"""The images of an evaluation; no run is trained here, a configuration is enough."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from PIL import Image

from dsui.data.registry import load
from dsui.errors import DataError, DsuiError
from dsui.evaluation.sources import ImageSources
from dsui.outputs import Outputs
from dsui.runs.model import Model
from tests.support.digit_runs import digit_config
from tests.support.official_files import write_cifar10

DIGITS = tuple("0123456789")
KNOWN = "0,1,2,3,4,5"


def sources(**choices: Any) -> ImageSources:
    part = choices.pop("part", "test")
    config = digit_config(**choices)
    return ImageSources(config, DIGITS[:6] if config.known else DIGITS, part)


def test_in_domain_images_are_the_whole_test_split() -> None:
    images, test = sources().own().load(), load("digits", "test")
    assert torch.equal(images.read(torch.arange(797)), test.read(torch.arange(797)))
    assert torch.equal(images.labels, test.labels)
    assert len(sources().training().load().labels) == 1000


def test_known_and_unknown_images_are_the_test_split_apart() -> None:
    open_set = sources(known=KNOWN)
    known, unknown = open_set.own().load(), open_set.unknown().load()
    test = load("digits", "test")
    assert torch.equal(known.read(torch.arange(len(known.labels))), test.read((test.labels < 6).nonzero().flatten()))
    assert len(known.labels) + len(unknown.labels) == 797
    assert unknown.classes == DIGITS[6:]
    assert set(open_set.training().load().labels.tolist()) == set(range(6))


def test_held_out_images_are_no_training_images() -> None:
    held = sources(held_out=0.2, part="held-out")
    trained, apart = held.training().load(), held.own().load()
    assert (len(trained.labels), len(apart.labels)) == (800, 200)
    pixels = {row.numpy().tobytes() for row in trained.read(torch.arange(800))}
    assert not any(row.numpy().tobytes() in pixels for row in apart.read(torch.arange(200)))
    assert sources(held_out=0.2, part="test").own().load().labels.shape == (797,)


def test_unknown_images_beside_held_out_ones_are_of_the_training_split() -> None:
    held = sources(known=KNOWN, held_out=0.2, part="held-out")
    unknown, train = held.unknown().load(), load("digits", "train")
    assert torch.equal(
        unknown.read(torch.arange(len(unknown.labels))), train.read((train.labels > 5).nonzero().flatten())
    )
    assert held.unknown().name != sources(known=KNOWN).unknown().name


def test_a_run_that_held_nothing_out_or_knows_all_classes_says_so() -> None:
    with pytest.raises(DsuiError, match="held no images out"):
        sources(part="held-out").own().load()
    with pytest.raises(DsuiError, match=r"knows all classes of its data; for the open-set task, train with --known"):
        sources().unknown()


def test_foreign_images_take_the_runs_shape() -> None:
    assert sources().foreign("photos").load().shape == (1, 8, 8)
    noise = sources().noise().load()
    assert (noise.shape, len(noise.labels)) == ((1, 8, 8), 10_000)
    colour = ImageSources(replace(digit_config(), size=32, channels=3, data="cifar10"), DIGITS)
    assert colour.foreign("digits").load().shape == (3, 32, 32)


def test_foreign_names_are_the_sets_that_are_there_without_the_runs_own(tmp_path: Path) -> None:
    assert ImageSources(digit_config(), DIGITS, root=tmp_path).foreign_names() == ("photos",)
    (tmp_path / "test_32x32.mat").write_bytes(b"")
    assert ImageSources(digit_config(), DIGITS, root=tmp_path).foreign_names() == ("photos", "svhn")
    of_svhn = ImageSources(replace(digit_config(), data="svhn"), DIGITS, root=tmp_path)
    assert of_svhn.foreign_names() == ("photos",)


def test_a_wrong_foreign_name_is_found_before_any_image_is_read() -> None:
    with pytest.raises(DataError, match="did you mean cifar100"):
        sources().foreign("cifar-100")
    for name in ("digits", "digits@train"):
        with pytest.raises(DataError, match=r"digits is the run's own data set; name another one as foreign"):
            sources().foreign(name)


def test_images_to_select_by_come_from_a_training_split(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    of_digits = ImageSources(digit_config(), DIGITS, root=tmp_path)
    drawn, test = of_digits.foreign("cifar10@train"), of_digits.foreign("cifar10")
    assert (drawn.name, drawn.load().shape, len(drawn.load().labels)) == ("cifar10@train", (1, 8, 8), 20)
    assert drawn.identity != test.identity
    assert len(test.load().labels) == 4


def identities(of: ImageSources) -> dict[str, tuple[str, str]]:
    found = {"own": of.own(), "training": of.training(), "noise": of.noise(), "photos": of.foreign("photos")}
    found["attacked"] = of.attacked(0.1)
    return {name: (source.name, source.identity) for name, source in found.items()}


def test_no_two_sources_of_a_run_are_taken_for_each_other() -> None:
    first = identities(sources(held_out=0.1))
    assert len(set(first.values())) == len(first)
    assert identities(sources(held_out=0.1)) == first
    assert identities(sources(seed=1, held_out=0.1)) == first, "all seeds see the same images"
    held = identities(sources(held_out=0.1, part="held-out"))
    assert held["own"] != first["own"]
    assert held["attacked"] != first["attacked"]
    assert held["training"] == first["training"]
    others = [identities(sources(held_out=0.2)), identities(sources(held_out=0.1, known=KNOWN))]
    for other in others:
        assert other["training"] != first["training"]
    assert others[1]["own"] != first["own"]
    strengths = [sources().attacked(epsilon) for epsilon in (0.1, 0.1 + 1e-9, 0.2)]
    assert len({(source.name, source.identity) for source in strengths}) == 3
    larger = ImageSources(replace(digit_config(), size=16), DIGITS)
    for name in ("noise", "photos"):
        assert identities(larger)[name] != first[name]


def test_the_split_names_the_in_domain_images_alike_for_all_seeds_and_methods() -> None:
    assert sources().split == sources(method="dsui", seed=3).split
    assert sources().split.startswith("all-classes:")
    assert sources(known=KNOWN).split.startswith(f"{KNOWN}:")
    splits = {
        sources().split,
        sources(known=KNOWN).split,
        sources(held_out=0.1).split,
        sources(held_out=0.1, part="held-out").split,
        ImageSources(digit_config(), DIGITS[::-1]).split,
    }
    assert len(splits) == 5


def linear_model() -> Model:
    """Two classes; the second one's logit grows with every pixel."""
    method = SimpleNamespace(predict=lambda x: Outputs(x, torch.stack([-x.flatten(1).sum(1), x.flatten(1).sum(1)], 1)))
    return cast("Model", SimpleNamespace(method=method))


def test_an_attack_moves_every_pixel_by_epsilon_against_its_label_and_stays_an_image() -> None:
    run = sources()
    pixels = torch.tensor([[0, 10], [128, 255]], dtype=torch.uint8).view(1, 1, 2, 2).expand(2, -1, -1, -1)
    change = run.attacked(0.1).change
    assert change is not None
    moved = change(linear_model(), pixels, torch.tensor([0, 1])) * 0.5 + 0.5
    plain = pixels.double() / 255
    expected = torch.stack([plain[0] + 0.1, plain[1] - 0.1]).clamp(0, 1)
    torch.testing.assert_close(moved.double(), expected, rtol=0, atol=1e-6)  # float32, normalised and back


def test_no_attack_is_the_images_as_they_are() -> None:
    own, unmoved = sources().own(), sources().attacked(0.0)
    assert (own.name, own.identity, own.change) == (unmoved.name, unmoved.identity, unmoved.change)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Three classes of grey images."""
    for split in ("train", "test"):
        for shade, name in enumerate(("ant", "bee", "cat")):
            folder = tmp_path / "photos" / split / name
            folder.mkdir(parents=True)
            for number in range(4):
                Image.new("L", (10, 10), 60 * shade + number).save(folder / f"{number}.png")
    return tmp_path / "photos"


def of_folder(path: Path, part: Any = "test", held_out: float = 0.25, skip_bad: bool = False) -> ImageSources:
    config = replace(digit_config(held_out=held_out), data=f"folder:{path}")
    return ImageSources(config, ("ant", "bee", "cat"), part, skip_bad=skip_bad)


def test_own_files_are_read_at_the_size_the_run_was_trained_on(photos: Path) -> None:
    run = of_folder(photos)
    assert run.own().load().shape == run.training().load().shape == (1, 8, 8)
    assert [len(source.load().labels) for source in (run.own(), run.training())] == [12, 9]


@pytest.mark.parametrize("which", ["own", "training", "held out"])
def test_a_class_that_vanished_or_was_renamed_is_told_whichever_images_are_asked_for(photos: Path, which: str) -> None:
    run = of_folder(photos, "held-out" if which == "held out" else "test")
    source = run.training if which == "training" else run.own
    source().load()
    for split in ("train", "test"):
        (photos / split / "bee").rename(photos / split / "wasp")
    with pytest.raises(DsuiError, match=r"trained on 3 classes and folder:.* now has 3 others; restore the data"):
        source().load()
    for split in ("train", "test"):
        for file in (photos / split / "wasp").iterdir():
            file.unlink()
        (photos / split / "wasp").rmdir()
    with pytest.raises(
        DsuiError, match=r"trained on 3 classes and folder:.* now has 2; restore the data or train again"
    ):
        source().load()


def test_a_known_class_that_is_another_now_is_told(photos: Path) -> None:
    run = of_folder(photos, held_out=0)
    known = ImageSources(replace(run.config, known="0,2"), ("ant", "cat"))
    assert known.unknown().load().classes == ("bee",)
    for split in ("train", "test"):
        (photos / split / "cat").rename(photos / split / "dog")
    for source in (known.own(), known.training(), known.unknown()):
        with pytest.raises(DsuiError, match="now has 2 others"):
            source.load()


def test_changed_files_make_another_identity(photos: Path) -> None:
    before = of_folder(photos).own().identity, of_folder(photos).training().identity
    os.utime(photos / "test" / "ant" / "0.png", ns=(1, 1))
    after = of_folder(photos).own().identity, of_folder(photos).training().identity
    assert after[0] != before[0]
    assert after[1] == before[1]
    assert of_folder(photos).attacked(0.1).identity.startswith(after[0])


def test_unreadable_files_are_an_error_or_left_out(photos: Path) -> None:
    (photos / "test" / "ant" / "broken.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"broken\.png cannot be used .* --skip-bad"):
        of_folder(photos).own().load()
    assert len(of_folder(photos, skip_bad=True).own().load().labels) == 12
    kept, whole = (of_folder(photos, skip_bad=each).own().identity for each in (True, False))
    assert kept != whole, "outputs without the bad file would hide it later"


def test_a_run_that_was_trained_without_unreadable_files_is_evaluated_without_them(photos: Path) -> None:
    for split in ("train", "test"):
        (photos / split / "ant" / "broken.png").write_bytes(b"no image")
    run = of_folder(photos)
    remembering = ImageSources(replace(run.config, skip_bad=True), run.classes)
    assert [len(source.load().labels) for source in (remembering.own(), remembering.training())] == [12, 9]


@pytest.mark.parametrize("layout", ["1.png", "deep/er/1.png", "ant/1.png", "test/ant/1.png", "train/ant/1.png"])
def test_foreign_images_may_lie_in_any_folder(tmp_path: Path, layout: str) -> None:
    (tmp_path / layout).parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (9, 9), (77, 77, 77)).save(tmp_path / layout)
    foreign = sources().foreign(f"folder:{tmp_path}")
    assert torch.equal(foreign.load().read(torch.tensor([0])), torch.full((1, 1, 8, 8), 77, dtype=torch.uint8))
    (tmp_path / layout).rename((tmp_path / layout).with_name("2.png"))
    assert sources().foreign(f"folder:{tmp_path}").identity != foreign.identity


def test_an_unreadable_foreign_image_is_an_error_or_left_out(tmp_path: Path) -> None:
    Image.new("L", (9, 9)).save(tmp_path / "good.png")
    (tmp_path / "bad.png").touch()
    with pytest.raises(DataError, match=r"bad\.png cannot be used"):
        sources().foreign(f"folder:{tmp_path}").load()
    skipping = ImageSources(digit_config(), DIGITS, skip_bad=True)
    assert len(skipping.foreign(f"folder:{tmp_path}").load().labels) == 1


def test_foreign_images_to_select_by_are_made_from_the_held_out_ones() -> None:
    held = sources(held_out=0.2, part="held-out")
    blends, patches = (held.foreign(name) for name in ("blends", "patches"))
    own = held.own().load()
    assert blends.name != patches.name
    assert len(blends.load().labels) == len(own.labels) == 200
    means = patches.load().read(torch.arange(200)).double().mean((1, 2, 3))
    torch.testing.assert_close(means, own.read(torch.arange(200)).double().mean((1, 2, 3)))
