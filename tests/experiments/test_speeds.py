"""Measured speeds: which one counts for a run that was not measured, and how new ones join the shipped ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dsui.experiments import speeds
from dsui.experiments.grid_file import load_grid
from dsui.experiments.speeds import Machine, Speed, joined, nearest, read_speeds, shipped_speeds, work_of
from dsui.runs.config import RunConfig

H200 = Machine("NVIDIA H200", "compiled")
(PLAIN, *_) = [cell.config for cell in load_grid("accuracy").cells if cell.config.data == "tiny-imagenet"]


def speed(method: str = "msp", device: str = "NVIDIA H200", backbone: str = "vgg16", together: int = 1) -> Speed:
    return Speed(device, backbone, method, "compiled", together, 32, 1.0, 1000.0, None, "test")


def with_recipe(config: RunConfig, **changes: object) -> RunConfig:
    return replace(config, recipe=replace(config.recipe, **changes))  # type: ignore[arg-type]


def test_work_counts_pixels_passes_copies_and_members() -> None:
    assert (PLAIN.backbone, PLAIN.size) == ("vgg16", 32)
    assert work_of(PLAIN) == 1
    assert work_of(replace(PLAIN, size=64)) == 4
    assert work_of(with_recipe(PLAIN, sam=0.05)) == 2
    assert work_of(with_recipe(PLAIN, sam=0.05, doubles="turns", doubles_copies=3, regmixup=0.5)) == 10
    assert work_of(replace(PLAIN, method="ensemble", options={"members": 5})) == 5


def test_the_method_comes_before_the_number_of_runs_side_by_side_and_the_device_before_both() -> None:
    found = [speed("dsui", together=5), speed("msp"), speed("dsui", device="NVIDIA A100")]
    dsui = replace(PLAIN, method="dsui")
    assert nearest(dsui, H200, found) == found[0]
    assert nearest(dsui, H200._replace(device="NVIDIA A100"), found) == found[2]
    assert nearest(replace(PLAIN, method="rkl"), H200, found[:2]) == found[1]  # a plain network
    assert nearest(dsui, H200, [speed("dsui"), latest := speed("dsui")]) is latest


def test_a_processor_says_nothing_about_a_gpu_and_a_net_nothing_about_another() -> None:
    assert nearest(PLAIN, H200, [speed(device="cpu"), speed(backbone="resnet18")]) is None
    assert nearest(PLAIN, Machine("cpu"), [speed()]) is None


def test_runs_side_by_side_share_the_device() -> None:
    assert speed(together=3).images_per_device(PLAIN) == 3000
    assert speed().images_per_device(replace(PLAIN, size=64)) == 250


def test_every_backbone_of_the_paper_was_measured_on_a_gpu_and_lines_are_sound() -> None:
    text = (Path(speeds.__file__).parent / "shipped" / "speeds.jsonl").read_text(encoding="utf-8")
    assert len(shipped_speeds()) == len(text.splitlines())
    for config in {cell.config.backbone: cell.config for cell in load_grid("accuracy").cells}.values():
        assert nearest(config, Machine("cuda"), shipped_speeds()) is not None


def test_new_measurements_replace_old_ones_by_their_median(tmp_path: Path) -> None:
    old, other = speed("msp"), speed("dsui")
    new = [
        old._replace(images_per_second=images, other_seconds=seconds) for images, seconds in ((5, 1), (9, 2), (7, 9))
    ]
    assert joined([old, other], new) == [other, new[0]._replace(images_per_second=7, other_seconds=2)]
    path = tmp_path / "speeds.jsonl"
    speeds.append_speed(path, old)
    with path.open("a") as file:
        file.write('{"device": 5}\n[1]\nnothing\n')
    speeds.append_speed(path, other._replace(images_per_second=0.0))
    speeds.append_speed(path, other)
    assert read_speeds(path) == [old, other]
    assert read_speeds(tmp_path / "none") == []


@pytest.mark.parametrize("arguments", [[], ["missing.jsonl"]])
def test_joining_nothing_is_refused(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["speeds", *arguments])
    with pytest.raises(Exception, match="no measurements; name files"):
        speeds.main()
