"""`dsui info`: versions, devices and data sets, for a bug report; or what an exported file says of itself."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path

from dsui import __version__
from dsui.cli.arguments import Root
from dsui.cli.info_onnx import Facts, File, facts_of_file, find_out, print_facts, version
from dsui.cli.plain_arguments import Json, Quiet

NEEDED = ("torch", "numpy", "scipy", "scikit-learn", "pillow", "safetensors", "pyyaml", "typer", "rich")
OPTIONAL = ("dsui-runtime", "matplotlib", "onnx", "onnxruntime", "onnxscript", "fastapi", "tensorboard", "ray")


def info(file: File = None, root: Root = None, as_json: Json = False, quiet: Quiet = False) -> None:
    """Print versions, devices and data sets, for a bug report; of FILE, what it says of itself.

    Where a fact cannot be found out, the reason stands in its place.

    Example: dsui info model.onnx
    """
    del quiet  # this command prints nothing but its result
    print_facts(collect_facts(root) if file is None else facts_of_file(file), as_json)


def collect_facts(root: Path | None = None) -> Facts:
    """Groups of facts by name; None stands for a package or data set that is not on this machine."""
    import torch

    from dsui.data.registry import DATASETS, default_root
    from dsui.evaluation.results import commit

    versions: dict[str, Callable[[], str | None]] = {
        "dsui": lambda: __version__,
        "commit": commit,
        "python": lambda: f"{platform.python_version()} ({sys.executable})",
        **{name: lambda name=name: version(name) for name in (*NEEDED, *OPTIONAL)},  # type: ignore[misc]
    }
    machine: dict[str, Callable[[], str | None]] = {
        "system": platform.platform,
        "processors": lambda: f"{os.cpu_count()}, {torch.get_num_threads()} threads in use",
        "CUDA of PyTorch": lambda: torch.version.cuda,
        "GPUs": _gpus,
    }
    folder = root or default_root()
    data: dict[str, Callable[[], str | None]] = {
        "folder": lambda: f"{folder}{'' if folder.is_dir() else ' (does not exist)'}",
        **{name: lambda name=name: _present(name, folder) for name in DATASETS},  # type: ignore[misc]
    }
    groups = {"versions": versions, "machine": machine, "data": data}
    return {group: {name: find_out(fact) for name, fact in facts.items()} for group, facts in groups.items()}


def _gpus() -> str | None:
    import torch

    if not torch.cuda.is_available():
        return None
    found = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    return ", ".join(f"{gpu.name} ({gpu.total_memory / 2**30:.0f} GiB)" for gpu in found)


def _present(name: str, root: Path) -> str | None:
    from dsui.data.registry import DATASETS

    entry = DATASETS[name]
    parts = ", ".join(entry.present(root))
    if not parts:
        return None
    return f"{parts} in {root / entry.folder}" if entry.files else f"{parts} (comes with dsui)"
