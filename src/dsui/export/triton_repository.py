"""A run in a model repository of NVIDIA Triton: DIR/NAME/config.pbtxt, labels.txt and VERSION/model.onnx.

A second export to the same model is its next version, and Triton serves the newest by default. All versions share one
config.pbtxt, so a version must take and give what the others do. A config.pbtxt that is there stays as it is, with what
its owner changed. A version appears under its number when it is whole; Triton passes over other names.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from dsui.errors import DsuiError, ModelError
from dsui.excerpt import excerpt
from dsui.export.fewer_bits import Precision
from dsui.export.run_export import NEEDED, Exported, check_packages, export_run
from dsui.export.triton_config import FILE, LABELS, config_text, labels_text
from dsui.progress import Progress, silent
from dsui.runs.files import write_bytes
from dsui.runs.model import run_facts
from dsui.runtime.facts import ModelFacts
from dsui.runtime.model_file import read_model

if TYPE_CHECKING:
    from onnx import GraphProto

CONFIG = "config.pbtxt"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
VERSION = re.compile(r"[1-9][0-9]{0,17}")


@dataclass(frozen=True)
class ServedByTriton:
    """What was written. `model` is the folder DIR/NAME."""

    model: Path
    version: int
    exported: Exported

    def to_mapping(self) -> dict[str, object]:
        """For JSON."""
        return {**self.exported.to_mapping(), "model": self.model, "version": self.version}


def export_to_triton(
    run: Path,
    repository: Path,
    *,
    precision: Precision = "fp32",
    name: str | None = None,
    root: Path | None = None,
    progress: Progress = silent,
) -> ServedByTriton:
    """Write the run in the folder `run` as a model, or as the next version of it; the repository is made if need be."""
    check_packages(*NEEDED)
    name = run_facts(run).name if name is None else name
    if NAME.fullmatch(name) is None:
        raise DsuiError(f"{excerpt(name)} is no name for a model in Triton; choose letters, digits, - and _ by --name.")
    model = repository / name
    former = _former(model)
    work = model / f".{uuid4().hex}"
    with ExitStack() as leaving:
        _make_folders(work, repository, leaving)
        exported = export_run(run, work / FILE, precision=precision, name=name, root=root, progress=progress)
        facts = read_model(work / FILE).facts
        _check_agreement(model, former, facts)
        _write_missing(model / CONFIG, config_text(_graph(work / FILE), name), leaving)
        _write_missing(model / LABELS, labels_text(facts.classes), leaving)
        version = _publish(work, model)
        leaving.pop_all()
    return ServedByTriton(model, version, replace(exported, file=model / str(version) / FILE))


def _former(model: Path) -> ModelFacts | None:
    """The facts of the newest version; None where there is no model yet. A DsuiError where it is not of dsui."""
    versions = _versions(model)
    if not versions:
        if (model / CONFIG).exists():
            raise _other(model, "has no version")
        return None
    try:
        return read_model(model / str(max(versions)) / FILE).facts
    except ModelError as error:
        raise _other(model, "was not written by dsui export") from error


def _versions(model: Path) -> list[int]:
    return [int(each) for each in os.listdir(model) if VERSION.fullmatch(each)] if model.is_dir() else []


def _check_agreement(model: Path, former: ModelFacts | None, new: ModelFacts) -> None:
    if former is None:
        return
    for what in ("input", "channels", "outputs", "classes"):
        if getattr(former, what) != getattr(new, what):
            raise _other(model, f"has other {what}" if what != "input" else f"takes {former.input}")


def _other(model: Path, how: str) -> DsuiError:
    return DsuiError(f"the model in {model} {how}, so this run cannot be a version of it; choose another --name.")


def _make_folders(work: Path, repository: Path, leaving: ExitStack) -> None:
    """Make `work` and what is missing above it, and plan to remove this again, where it is still empty."""
    missing = [each for each in (repository, work.parent) if not each.exists()]
    for folder in missing:
        leaving.callback(_remove_if_empty, folder)
    leaving.callback(shutil.rmtree, work, ignore_errors=True)
    try:
        work.mkdir(parents=True)
    except OSError as error:
        raise DsuiError(f"{repository} cannot be written ({error.strerror}); choose another folder.") from error


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def _write_missing(path: Path, text: str, leaving: ExitStack) -> None:
    if not path.exists():
        write_bytes(path, text.encode())
        leaving.callback(path.unlink, missing_ok=True)


def _publish(work: Path, model: Path) -> int:
    """Give the folder the next number, and return it; another process may take one at the same time."""
    while True:
        version = max(_versions(model), default=0) + 1
        try:
            work.rename(model / str(version))
        except OSError:
            if (model / str(version)).exists():
                continue
            raise
        return version


def _graph(file: Path) -> GraphProto:
    import onnx

    return onnx.load(file).graph
