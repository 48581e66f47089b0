"""Imports inside dsui point one way: a module imports only from its own room and from rooms before it.

The graph is read from the source, so imports inside functions and for type checking count as well. Reading the version
from the package root (`from dsui import __version__`) is not an edge: Python loads the root before any of its modules.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from importlib.util import resolve_name

from tests.support.fences import ROOT

ROOMS = """
errors excerpt regular_file plain_yaml plain_json plain_pickle schema installed
spelling lazy_registry differentiation checks progress host_memory resources device spreadsheet python_words ray_cluster
monitoring
fused matrix_product density divergence em projection families
head_output head released companions balancing length objectives
weibull pareto
outputs score_table scores recipe limits prediction hub
backbones
methods
detectors
data
runs
runtime
serving
training
evaluation
deploy
export
report
publishing
experiments
benchmarks
classifier
sklearn
cli
__init__ __main__
"""
"""One room a line. A name is a folder of src/dsui or a file directly below it."""

OUTSIDE = {"studies", "tests", "benchmarks", "examples"}
"""Folders of the repository that are not part of the wheel."""

OF_THE_ROOT_ITSELF = {"dsui", "dsui.__version__", "dsui.__file__"}
"""What any module may read from the package root."""

SOURCE = ROOT / "src"
LEVELS = {name: level for level, line in enumerate(ROOMS.strip().splitlines()) for name in line.split()}
Graph = Mapping[str, Collection[str]]


def read_sources() -> dict[str, str]:
    """The source of every module; a package goes by its own name, dsui.cli for dsui/cli/__init__.py."""
    sources = {}
    for file in sorted((SOURCE / "dsui").rglob("*.py")):
        parts = file.relative_to(SOURCE).with_suffix("").parts
        sources[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file.read_text()
    return sources


def imported_names(tree: ast.AST, package: str) -> Iterator[str]:
    """The dotted names that a module imports: module.name for `from module import name`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = resolve_name("." * node.level + (node.module or ""), package)
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "dsui":
            yield f"dsui.{node.attr}"  # after `import dsui`


def build_graph(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """For each module: the modules of dsui that it imports, and the folders of OUTSIDE."""
    packages = {module.rpartition(".")[0] for module in sources}
    graph: dict[str, set[str]] = {}
    for module, source in sources.items():
        package = module if module in packages else module.rpartition(".")[0]
        found = set()
        for name in imported_names(ast.parse(source), package):
            top = name.split(".")[0]
            if top in OUTSIDE:
                found.add(top)
            elif top == "dsui" and name not in OF_THE_ROOT_ITSELF:
                found.add(name if name in sources else name.rpartition(".")[0])
        graph[module] = found - {module}
    return graph


def room_index(module: str) -> int:
    """The position of a module's room; -1 where it has none."""
    name = {"dsui": "__init__"}.get(module, module.removeprefix("dsui.").split(".")[0])
    return LEVELS.get(name, -1)


def format_edges(pairs: Collection[tuple[str, str]]) -> str:
    return "\n".join(f"{importer} -> {imported}" for importer, imported in sorted(pairs))


def find_back_edges(graph: Graph) -> str:
    return format_edges(
        [(a, b) for a, found in graph.items() for b in found if b not in OUTSIDE and room_index(b) > room_index(a)]
    )


def find_cycle_edges(graph: Graph) -> str:
    """The edges inside strongly connected components: those whose end leads back to their beginning."""
    reachable = {module: reachable_from(module, graph) for module in graph}
    return format_edges([(a, b) for a, found in graph.items() for b in found if a in reachable.get(b, ())])


def reachable_from(start: str, graph: Graph) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        new = set(graph.get(waiting.pop(), ())) - seen
        seen |= new
        waiting += new
    return seen


GRAPH = build_graph(read_sources())


def test_every_module_belongs_to_a_room() -> None:
    assert not [module for module in GRAPH if room_index(module) < 0]


def test_every_room_is_on_disk() -> None:
    folder = SOURCE / "dsui"
    assert not [name for name in LEVELS if not (folder / name).is_dir() and not (folder / f"{name}.py").is_file()]


def test_imports_point_from_later_rooms_to_earlier_ones() -> None:
    found = find_back_edges(GRAPH)
    assert not found, f"imports against the order of rooms:\n{found}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    found = find_cycle_edges(GRAPH)
    assert not found, f"imports that lead back to where they began:\n{found}"


def test_the_package_imports_nothing_from_outside_of_the_wheel() -> None:
    found = format_edges([(module, name) for module, names in GRAPH.items() for name in names if name in OUTSIDE])
    assert not found, f"imports of what is not in the wheel:\n{found}"


def test_contributing_shows_the_same_rooms_in_the_same_order() -> None:
    (fence,) = re.findall(
        r"^```text\n(errors .*?)^```$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert [line.partition("  ")[0] for line in fence.splitlines()] == ROOMS.strip().splitlines()


def test_imports_are_found_wherever_they_stand() -> None:
    sources = {
        "dsui": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from dsui.head import MoGMMHead",
        "dsui.head": "def f():\n    import dsui.em",
        "dsui.em": "import dsui\nprint(dsui.MoGMMHead)",
        "dsui.data": "",
        "dsui.data.a": "from dsui.data import b\nfrom dsui.data.b import Loader\nfrom dsui import __version__",
        "dsui.data.b": "from .a import x\nfrom ..head import y\nfrom studies import digits\nimport torch",
    }
    assert build_graph(sources) == {
        "dsui": {"dsui.head"},
        "dsui.head": {"dsui.em"},
        "dsui.em": {"dsui"},
        "dsui.data": set(),
        "dsui.data.a": {"dsui.data.b"},
        "dsui.data.b": {"dsui.data.a", "dsui.head", "studies"},
    }


def test_an_edge_to_a_later_room_is_named() -> None:
    graph = {"dsui.head": ["dsui.runs.files", "dsui.checks", "dsui"], "dsui.runs.files": ["dsui.head"]}
    assert find_back_edges(graph) == "dsui.head -> dsui\ndsui.head -> dsui.runs.files"


def test_a_cycle_is_named_and_what_leads_into_it_is_not() -> None:
    graph = {"a": ["b"], "b": ["c"], "c": ["b", "d"], "d": []}
    assert find_cycle_edges(graph) == "b -> c\nc -> b"
