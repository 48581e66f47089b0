"""Where a served model comes from: a file model.onnx, or a run, which is exported to a temporary file first.

The export runs in a process of its own. So the server never holds PyTorch in memory, and a reload of a run does not
stop it from answering.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from dsui.errors import DsuiError
from dsui.excerpt import shorten
from dsui.serving.logs import write_event

ENDING = ".onnx"
LONGEST = 1800
"""Seconds of an export."""


def model_name(source: Path) -> str:
    """The name that a model is served under: its file's without the ending, or its run's."""
    path = Path(os.path.abspath(source))
    return path.stem if path.suffix == ENDING else path.name


@contextmanager
def exported(source: Path) -> Iterator[Path]:
    """The ONNX file of a source; that of a run is deleted at the end."""
    if source.suffix == ENDING or source.is_file():
        yield source
        return
    if not source.is_dir():
        raise DsuiError(f"there is no {source}; name a file model.onnx, or the folder of a run.")
    if find_spec("torch") is None:
        raise DsuiError(
            f"{source} is the folder of a run, which needs PyTorch; serve the file of `dsui export` instead."
        )
    with TemporaryDirectory(prefix="dsui-serve-") as folder:
        file = Path(folder) / f"{model_name(source)}{ENDING}"
        _export(source, file)
        yield file


def _export(run: Path, file: Path) -> None:
    write_event(logging.INFO, "exporting", source=str(run))
    command = [sys.executable, "-m", "dsui", "export", str(run), str(file), "--quiet"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST)  # noqa: S603
    except subprocess.TimeoutExpired as error:
        raise DsuiError(f"the export of {run} did not end within {LONGEST} s; run dsui export yourself.") from error
    if done.returncode != 0:
        why = done.stderr.strip().splitlines()[-1:] or ["the export failed."]
        raise DsuiError(shorten(why[0].removeprefix("dsui: "), 500))
