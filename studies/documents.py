"""Writes the tables, figures and quoted numbers of README.md and docs/ from the committed rows in results/.

    python -m studies.documents       # in the root of the repository; `make tables` does the same

writes every block between two lines like

    <!-- results: {file: cifar10-resnet18-paper, grid: cifar10-paper} -->
    <!-- end -->

the figures of such blocks in docs/figures/, and every number that a comment quotes. `studies.document_blocks` explains
the keys of blocks, `studies.document_numbers` the comments. The tests do the same in memory and fail where a document
differs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from yaml import YAMLError

from dsui.errors import DsuiError
from studies.document_blocks import BlockSpec, render_block
from studies.document_numbers import NumberReader

RESULTS, DOCS, FIGURES = Path("results"), Path("docs"), Path("docs/figures")
BEGIN = re.compile(r"^<!-- results:", re.MULTILINE)
BLOCK = re.compile(r"^(?P<begin><!-- results:(?P<spec>.*?)-->\n).*?^<!-- end -->$", re.MULTILINE | re.DOTALL)


def find_documents(root: Path) -> Iterator[Path]:
    yield from sorted(root.glob("*.md"))
    yield from sorted((root / DOCS).rglob("*.md"))


def regenerate(root: Path) -> dict[Path, str]:
    """Every document and every figure of a block, by path, as the rows make them; writes nothing."""
    files: dict[Path, str] = {}
    numbers = NumberReader(root / RESULTS)
    for path in find_documents(root):
        text = path.read_text(encoding="utf-8")
        blocks = list(BLOCK.finditer(text))
        if len(blocks) != len(BEGIN.findall(text)):
            raise DsuiError(f"{path} has a block without its end; write <!-- end --> on a line of its own.")
        for block in reversed(blocks):
            spec = _parse(path, block)
            figure = root / FIGURES / f"{spec.figure}.svg"
            try:
                markdown, svg = render_block(spec, root / RESULTS, os.path.relpath(figure, path.parent))
            except (OSError, ValueError) as error:
                raise DsuiError(f"{path}, block {block['spec'].strip()!r}: {error}") from error
            text = f"{text[: block.start()]}{block['begin']}\n{markdown}\n\n<!-- end -->{text[block.end() :]}"
            if svg is not None:
                files[figure] = svg
        try:
            files[path] = numbers.replace(text)
        except (OSError, ValueError, YAMLError) as error:
            raise DsuiError(f"{path}: {error}") from error
    return files


def _parse(path: Path, block: re.Match[str]) -> BlockSpec:
    try:
        return BlockSpec.parse(block["spec"])
    except (ValueError, YAMLError) as error:
        raise DsuiError(f"{path}: {error}") from error


def main(root: Path = Path()) -> None:
    for path, text in regenerate(root).items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"{path} is updated.")


if __name__ == "__main__":
    main()
