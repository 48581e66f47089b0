"""Which distribution is installed: dsui, or dsui-runtime, which is the part of it that needs no PyTorch.

Both hold the same files where they share any. So both in one environment work as dsui, provided that they have one
version; with two versions the files would be mixed.
"""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path

METADATA = re.compile(r"(dsui|dsui_runtime)-([^-]+)\.dist-info")
"""Names of the folders in which installers keep what they know of the two."""


def has_everything() -> bool:
    """Whether this is dsui, and not dsui-runtime alone."""
    return find_spec("dsui.cli.application") is not None


def distribution() -> str:
    """The name to give to pip."""
    return "dsui" if has_everything() else "dsui-runtime"


def check_versions(folder: Path) -> None:
    """An ImportError if the folder of installed packages holds both in different versions."""
    try:
        found = {match[1]: match[2] for name in os.listdir(folder) if (match := METADATA.fullmatch(name))}
    except OSError:  # the package is in an archive
        return
    if len(set(found.values())) > 1:
        both = " and ".join(f"{name.replace('_', '-')} {version}" for name, version in sorted(found.items()))
        raise ImportError(
            f"{both} are both installed, so their files are mixed; run pip uninstall -y dsui dsui-runtime, then "
            "install one of them."
        )
