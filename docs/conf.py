"""How sphinx builds the site: `make docs` writes docs/_build/html, without a network and without a warning.

The pages are Markdown that a code host shows as well. This file adds three things:

* In docs/api a fence {modules} lists modules. Each becomes a section, and NAME.* stands for all modules of a package.
* A link to a file outside docs becomes a download, because the file is not a page of the site. A link to a folder
  becomes plain text.
* Docstrings are plain text: `code` between single backquotes, lists that begin with *, and indented lines that are
  shown unchanged.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TypeVar

from docutils.nodes import Element
from sphinx.application import Sphinx

from dsui import __version__

project = "dsui"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
myst_heading_anchors = 3
highlight_language = "none"
smartquotes = False

html_theme = "furo"
html_title = f"dsui {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_inherit_docstrings = False
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
python_display_short_literal_types = True
toc_object_entries_show_parents = "hide"
python_maximum_signature_line_length = 100

nitpick_ignore_regex = [
    # Names of other packages, whose own pages need a network.
    ("py:.*", r"(collections|io|nn|numpy|np|pathlib|PIL|sklearn|torch|typing|Image)\..*|DataFrame|NDArray|Path|Tensor"),
]

MODULES = re.compile(r"^```\{modules\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
UPWARD = re.compile(r"\[([^]]+)\]\((\.\./[^)#]+)\)")
LIST_ITEM = re.compile(r"\* ")
CODE = re.compile(r"`([^`]+)`")
OWN_NAME = re.compile(r"dsui(\.\w+)+")
SPECIAL = re.compile(r"([\\*_|<>:])")


def modules(name: str) -> Iterator[str]:
    if not name.endswith(".*"):
        yield name
        return
    package = import_module(name.removesuffix(".*"))
    yield from (f"{package.__name__}.{each.name}" for each in iter_modules(package.__path__))


def _sections(fence: re.Match[str]) -> str:
    named = dict.fromkeys(each for name in fence[1].split() for each in modules(name))
    return "\n".join(f"## {each}\n\n```{{eval-rst}}\n.. automodule:: {each}\n```\n" for each in named)


def restructured(lines: Iterable[str]) -> list[str]:
    """The lines of a docstring as reStructuredText that shows them unchanged."""
    found: list[str] = []
    literal = listed = False
    for line in lines:
        listed = bool(LIST_ITEM.match(line)) or (listed and line.startswith("  "))
        indented = line.startswith("  ") and not listed
        if indented and not literal:
            found += ["", "::", ""]
        if literal and line.strip() and not indented:
            found.append("")
        literal = indented or (literal and not line.strip())
        found.append(line if literal else _inline(line))
    return found


def _inline(line: str) -> str:
    item = LIST_ITEM.match(line)
    parts = CODE.split(line[item.end() :] if item else line)
    return ("* " if item else "") + "".join(
        (f":py:obj:`{part}`" if OWN_NAME.fullmatch(part) else f"``{part}``") if code else SPECIAL.sub(r"\\\1", part)
        for part, code in zip(parts, [False, True] * len(parts), strict=False)
    )


def _read(app: Sphinx, page: str, content: list[str]) -> None:
    folder = Path(app.env.doc2path(page)).parent

    def outside(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        if target.is_relative_to(app.srcdir):
            return link[0]
        return link[1] if target.is_dir() else f"{{download}}`{link[1]} <{link[2]}>`"

    content[0] = UPWARD.sub(outside, MODULES.sub(_sections, content[0]))


def _process(app: Sphinx, what: str, name: str, item: object, options: object, lines: list[str]) -> None:
    del app, what, name, item, options
    lines[:] = restructured(lines)


def _signature(
    app: Sphinx, what: str, name: str, item: object, options: object, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Show a default that a dataclass creates for each object as "...", which sphinx can read."""
    del app, what, name, item, options
    return signature and signature.replace("<factory>", "..."), returned


def _is_type_variable(app: Sphinx, domain: object, node: Element) -> bool | None:
    """Accept a reference to a type variable of ours, which has no description to point to."""
    del app, domain
    module, _, name = node["reftarget"].rpartition(".")
    return isinstance(getattr(sys.modules.get(module), name, None), TypeVar) or None


def setup(app: Sphinx) -> None:
    app.connect("source-read", _read)
    app.connect("autodoc-process-docstring", _process)
    app.connect("autodoc-process-signature", _signature)
    app.connect("warn-missing-reference", _is_type_variable)
