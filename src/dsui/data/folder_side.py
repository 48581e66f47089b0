"""The side that the images of a folder get where the user names none: about that of the files.

    the median of the shorter sides, at most `most`; from 64 pixels on a multiple of 32, as networks halve images often

Images are not enlarged then, but for those below the median.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median_low
from typing import NamedTuple

from dsui.data.decode import ImageError, read_header
from dsui.data.folder import split_files
from dsui.data.registry import FOLDER_SHAPE

LOOKED_AT = 1000
"""Files whose headers are read, spread over all classes."""
STEP, STEPS_FROM = 32, 64


class Side(NamedTuple):
    """In pixels: what was chosen, and the median of the shorter sides of the files."""

    chosen: int
    median: int


def usual_side(path: Path, most: int) -> Side:
    """For the training images of a folder, which are at most `most` pixels high and wide afterwards."""
    files = [file for part in split_files(path, "train").files_of_class.values() for file in part]
    sides = []
    for file in files[:: max(1, -(-len(files) // LOOKED_AT))]:
        try:
            sides.append(min(read_header(file).size))
        except ImageError:
            continue  # which is told when the folder is read
    if not sides:
        return Side(FOLDER_SHAPE[1], FOLDER_SHAPE[1])
    middle = median_low(sides)
    side = min(middle, most)
    return Side(side - side % STEP if side >= STEPS_FROM else side, middle)
