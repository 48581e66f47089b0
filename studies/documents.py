"""Documents whose tables and figures are made from committed results rows.

What stands in README.md or docs/ between the lines

    <!-- results: {file: cifar10-resnet18-paper, grid: cifar10-paper} -->
    <!-- end -->

is written by `python -m studies.documents`, run in the repository; `studies.document_blocks` says what may be
asked for. The tests do the same in memory and fail where a document says something else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from yaml import YAMLError

from dsui.errors import DsuiError
from studies.document_blocks import Specification, made

RESULTS, DOCS, FIGURES = Path("results"), Path("docs"), Path("docs/figures")
BEGIN = re.compile(r"^<!-- results:", re.MULTILINE)
BLOCK = re.compile(
    r"^(?P<begin><!-- results:(?P<asked>.*?)-->\n)(?P<shown>.*?)^<!-- end -->$", re.MULTILINE | re.DOTALL
)


def documents(root: Path) -> Iterator[Path]:
    yield from sorted(root.glob("*.md"))
    yield from sorted((root / DOCS).rglob("*.md"))


def regenerated(root: Path) -> dict[Path, str]:
    """Every document that has blocks, and every figure of theirs, as the rows say they should be."""
    files: dict[Path, str] = {}
    for path in documents(root):
        text = path.read_text(encoding="utf-8")
        blocks = list(BLOCK.finditer(text))
        if len(blocks) != len(BEGIN.findall(text)):
            raise DsuiError(f"{path} has a block without its end; write <!-- end --> on a line of its own.")
        for block in reversed(blocks):
            asked = _asked(path, block)
            figure = root / FIGURES / f"{asked.figure}.svg"
            try:
                shown, svg = made(asked, root / RESULTS, os.path.relpath(figure, path.parent))
            except (OSError, ValueError) as error:
                raise DsuiError(f"{path}, block {block['asked'].strip()!r}: {error}") from error
            text = f"{text[: block.start()]}{block['begin']}\n{shown}\n\n<!-- end -->{text[block.end() :]}"
            if svg is not None:
                files[figure] = svg
        if blocks:
            files[path] = text
    return files


def _asked(path: Path, block: re.Match[str]) -> Specification:
    try:
        return Specification.parsed(block["asked"])
    except (ValueError, YAMLError) as error:
        raise DsuiError(f"{path}: {error}") from error


def main(root: Path = Path()) -> None:
    for path, text in regenerated(root).items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"{path} is written anew")


if __name__ == "__main__":
    main()
