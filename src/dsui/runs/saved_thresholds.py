"""The thresholds that a run keeps, in RUN/thresholds.safetensors: `dsui threshold --save` writes them.

They are JSON in the metadata. Where a detector gives a score, the file also holds what the detector learned from the
training images, as tensors, so that thresholds and detector are replaced together. The metadata name the weights the
thresholds belong to by their fingerprint, so that thresholds of other weights are never used. The file is renamed when
it is whole: whoever reads it meanwhile finds the former one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from dsui.errors import DsuiError, RunError
from dsui.excerpt import shorten
from dsui.hub import is_cached
from dsui.runs.acceptance import Thresholds
from dsui.runs.model import fingerprint
from dsui.runs.weights import load_weights, read_metadata, save_weights

THRESHOLDS = "thresholds.safetensors"
TEXT, OF_WEIGHTS = "thresholds", "weights"
"""Keys in the metadata."""


def saved_thresholds(run: Path) -> Thresholds | None:
    """What `dsui predict` accepts by; None where the run keeps no thresholds.

    A RunError where they are damaged or of other weights: to predict without them would accept every image.
    """
    path = run / THRESHOLDS
    if not os.path.lexists(path):
        return None
    try:
        return _checked(run, read_metadata(path))
    except (KeyError, ValueError, RunError) as error:
        raise unusable(run, error) from error


def saved_tensors(run: Path) -> dict[str, Tensor]:
    """What the detector of the saved thresholds learned."""
    try:
        tensors, metadata = load_weights(run / THRESHOLDS)
        _checked(run, metadata)
    except (KeyError, ValueError, RunError) as error:
        raise unusable(run, error) from error
    return tensors


def save_thresholds(
    run: Path, thresholds: Thresholds, weights: str, tensors: Mapping[str, Tensor] | None = None
) -> Path:
    """Keep thresholds in the run, in place of former ones. `weights` is the fingerprint of the weights they were chosen
    with, `tensors` what their detector learned. Returns the file."""
    path = run / THRESHOLDS
    if is_cached(run):
        raise DsuiError(
            f"{run} is the cache of the hub, which other programs share; copy the model into a folder with "
            "`hf download USER/NAME --local-dir FOLDER`, and save there."
        )
    try:
        save_weights(path, tensors or {}, {TEXT: thresholds.to_text(), OF_WEIGHTS: weights})
    except RunError as error:
        why = error.__cause__.strerror if isinstance(error.__cause__, OSError) else error
        raise DsuiError(f"{path} cannot be written ({why}); the thresholds are not saved.") from error
    return path


def _checked(run: Path, metadata: Mapping[str, str]) -> Thresholds:
    found = Thresholds.from_text(metadata[TEXT])
    if metadata[OF_WEIGHTS] != fingerprint(run):
        raise ValueError("they were chosen for other weights than the run has now")
    return found


def unusable(run: Path, error: Exception) -> RunError:
    """The error for thresholds that are there and cannot be used."""
    told = isinstance(error, ValueError)
    reason = shorten(error) if told else "the file is damaged or of another dsui"
    return RunError(
        f"the thresholds in {run / THRESHOLDS} cannot be used ({reason}); choose them again with "
        f"`dsui threshold {run} --coverage 0.95 --save`, or delete the file."
    )
