"""`dsui info` by an ONNX file; the whole of that command where PyTorch is not installed."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from dsui import __version__
from dsui.cli.json_output import print_json
from dsui.cli.plain_arguments import Json, Quiet, parse_path
from dsui.cli.terminal import stdout_console

PACKAGES = ("numpy", "pillow", "onnxruntime", "typer", "rich", "fastapi", "uvicorn")
Facts = dict[str, dict[str, str | None]]
File = Annotated[
    Path | None,
    typer.Argument(help="A file of `dsui export`, to be told about it instead.", metavar="FILE", parser=parse_path),
]


def info(file: File = None, as_json: Json = False, quiet: Quiet = False) -> None:
    """Print versions, for a bug report; of FILE, what it says of itself.

    Example: dsui info model.onnx
    """
    del quiet  # this command prints nothing but its result
    print_facts(versions_of(PACKAGES) if file is None else facts_of_file(file), as_json)


def facts_of_file(file: Path) -> Facts:
    """Groups of facts by name."""
    from dsui.runtime.file_facts import file_facts

    return file_facts(file)


def versions_of(packages: tuple[str, ...]) -> Facts:
    """None stands for a package that is not on this machine."""
    return {
        "versions": {
            "dsui-runtime": __version__,
            "python": f"{platform.python_version()} ({sys.executable})",
            **{name: version(name) for name in packages},
        },
        "machine": {"system": find_out(platform.platform), "processors": str(os.cpu_count())},
    }


def version(package: str) -> str | None:
    """None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def find_out(fact: Callable[[], str | None]) -> str | None:
    """The fact, or the reason why it is unknown."""
    try:
        return fact()
    except Exception as error:
        return f"unknown ({type(error).__name__}: {error})"


def print_facts(facts: Facts, as_json: bool) -> None:
    """As a table, or as JSON."""
    if as_json:
        print_json(facts)
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    for group, entries in facts.items():
        for number, (name, value) in enumerate(entries.items()):
            table.add_row("" if number else group, name, Text("-" if value is None else value, overflow="fold"))
        table.add_section()
    stdout_console().print(table)
