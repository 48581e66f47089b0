"""Shared by the benchmarks: their command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path


def command(description: str | None) -> argparse.ArgumentParser:
    """A parser with `--out`; a benchmark may add its own options."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the table to this file")
    return parser


def show(report: Callable[[], str], out: Path | None) -> None:
    text = report()
    print(text)
    if out:
        out.write_text(text)
