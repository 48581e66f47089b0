"""Measured speeds of training, from which the length of runs is estimated that have never been trained here.

`shipped/speeds.jsonl` holds one measurement on a line. A study appends its own to a file beside its rows;

    python -m dsui.experiments.speeds OUT/results.speeds ...

joins them with the shipped ones, in the source tree: of equal facts the median of the new lines counts.

For a run that was not measured the nearest measurement counts: on the same kind of device and with the same backbone,
then preferably with the same device, method, mode, size and work, and as many runs side by side. Its images per second
are divided by the ratio of the work, which is that of the images' pixels, passes and copies.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from statistics import median
from typing import NamedTuple

from dsui.errors import DsuiError
from dsui.methods.registry import effective_options
from dsui.runs.config import RunConfig
from dsui.runs.files import append_lines, write_bytes

SHIPPED, SHIPPED_SPEEDS, SPEEDS = "shipped", "speeds.jsonl", ".speeds"
CPU, GPU = "cpu", "cuda"
PLAIN_METHODS = ("msp", "dsui")
"""Where a method was not measured, these are nearer than methods with several networks or steps."""
USUAL_SIDE = 32


class Machine(NamedTuple):
    """What runs are trained on: `device` as results rows name it ("cuda": some GPU), `mode` as in --mode, and how many
    runs share the device."""

    device: str
    mode: str = "auto"
    together: int = 1


class Speed(NamedTuple):
    """One measurement. `images_per_second` is that of one run while `together` of them share the device; `work` is the
    cost of an image (`work_of`), and `other_seconds` is what a run takes beside its epochs, None where that is unknown.
    """

    device: str
    backbone: str
    method: str
    mode: str
    together: int
    size: int
    work: float
    images_per_second: float
    other_seconds: float | None
    source: str

    def images_per_device(self, config: RunConfig) -> float:
        """Images per second of all runs that share a device, if they are runs of `config`."""
        return self.images_per_second * self.together * self.work / work_of(config)


def work_of(config: RunConfig) -> float:
    """What an image costs, in images of 32 x 32 pixels that pass one network once: SAM takes two passes, turned and
    mixed copies are further images, and an ensemble trains every member."""
    recipe = config.recipe
    copies = (recipe.doubles_copies if recipe.doubles == "turns" else 0) + (recipe.regmixup > 0)
    members = effective_options(config.method, recipe, config.options).get("members", 1)
    passes = (2 if recipe.sam > 0 else 1) * (members if isinstance(members, int) else 1)
    return (1 + copies) * passes * (config.size / USUAL_SIDE) ** 2


def nearest(config: RunConfig, machine: Machine, speeds: Iterable[Speed]) -> Speed | None:
    """The measurement that is most like a run; None if none is on such a device with this backbone."""
    on_cpu = machine.device == CPU
    alike = [speed for speed in speeds if (speed.device == CPU) == on_cpu and speed.backbone == config.backbone]
    work = work_of(config)

    def distance(speed: Speed) -> tuple[float, ...]:
        return (
            speed.device != machine.device,
            _distance_of_methods(speed.method, config.method),
            speed.mode != machine.mode,
            abs(math.log(speed.size / config.size)),
            abs(math.log(speed.work / work)),
            abs(speed.together - machine.together),
        )

    return min(reversed(alike), key=distance, default=None)  # of equally near ones the last


def shipped_speeds() -> list[Speed]:
    text = (resources.files("dsui.experiments") / SHIPPED / SHIPPED_SPEEDS).read_text(encoding="utf-8")
    return _parse(text)


def read_speeds(path: Path) -> list[Speed]:
    """The measurements in a file that may be missing or damaged."""
    try:
        return _parse(path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return []


def append_speed(path: Path, speed: Speed) -> None:
    """Add a measurement; a disk that refuses must not stop a study."""
    with suppress(OSError):
        append_lines(path, f"{_line(speed)}\n".encode())


def joined(shipped: Sequence[Speed], new: Iterable[Speed]) -> list[Speed]:
    """The shipped measurements with the new ones in the place of those of equal facts."""
    groups: dict[tuple[object, ...], list[Speed]] = {}
    for speed in new:
        groups.setdefault(speed[:7], []).append(speed)
    kept: dict[tuple[object, ...], Speed] = {speed[:7]: speed for speed in shipped}
    for facts, measured in groups.items():
        other = [each.other_seconds for each in measured if each.other_seconds is not None]
        kept[facts] = measured[-1]._replace(
            images_per_second=round(median(each.images_per_second for each in measured)),
            other_seconds=round(median(other), 1) if other else None,
        )
    return sorted(kept.values(), key=lambda speed: speed[:7])


def _distance_of_methods(measured: str, asked: str) -> int:
    if measured == asked:
        return 0
    return 1 + PLAIN_METHODS.index(measured) if measured in PLAIN_METHODS else 1 + len(PLAIN_METHODS)


def _parse(text: str) -> list[Speed]:
    found = []
    for line in text.splitlines():
        with suppress(ValueError, TypeError, RecursionError):
            speed = Speed(**json.loads(line))
            if _is_sound(speed):
                found.append(speed)
    return found


def _is_sound(speed: Speed) -> bool:
    numbers = (speed.images_per_second, speed.work, speed.size, speed.together)
    texts = (speed.device, speed.backbone, speed.method, speed.mode)
    other = speed.other_seconds
    return (
        all(isinstance(number, int | float) and 0 < number < math.inf for number in numbers)
        and (other is None or (isinstance(other, int | float) and 0 <= other < math.inf))
        and all(isinstance(text, str) for text in texts)
    )


def _line(speed: Speed) -> str:
    return json.dumps(speed._asdict())


def main() -> None:
    new = [speed for name in sys.argv[1:] for speed in read_speeds(Path(name))]
    if not new:
        raise DsuiError("no measurements; name files that studies wrote, as in reproduced/accuracy/results.speeds.")
    text = "".join(f"{_line(speed)}\n" for speed in joined(shipped_speeds(), new))
    write_bytes(Path(__file__).parent / SHIPPED / SHIPPED_SPEEDS, text.encode())


if __name__ == "__main__":
    main()
