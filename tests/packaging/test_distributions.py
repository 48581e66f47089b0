"""What the two wheels of this tree hold and depend on: dsui, and dsui-runtime, which needs no PyTorch."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support.fences import ROOT
from tests.test_imports import GRAPH, SOURCE, reachable_from

RUNTIME = ROOT / "packaging" / "runtime"
STARTS = ("dsui.runtime", "dsui.__main__", "dsui.cli.runtime_application", "dsui.installed")
"""What users of dsui-runtime import and run."""
LAZY = {"dsui": set[str](), "dsui.cli": {"dsui.installed"}}
"""Packages that look up names when these are asked for, and what they import at once."""
ONLY_OF_DSUI = {"dsui.cli.monitor": {"dsui.deploy.promised"}}
"""What modules import in places that dsui-runtime does not reach."""
LIGHT = {"numpy", "PIL", "onnxruntime"}
OF_THE_COMMANDS = {"typer", "rich"}
OF_THE_SERVER = {"fastapi", "starlette", "uvicorn", "prometheus_client", "python_multipart", "pydantic", "anyio"}


def build(folder: Path, out: Path) -> Path:
    """The wheel of a project, by the hatchling that is installed."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(out)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (wheel,) = out.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(RUNTIME, tmp_path_factory.mktemp("runtime"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("whole"))


def contents(wheel: Path) -> dict[str, bytes]:
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def metadata(wheel: Path) -> Message:
    (text,) = (content for name, content in contents(wheel).items() if name.endswith(".dist-info/METADATA"))
    return message_from_bytes(text)


def modules(wheel: Path) -> set[str]:
    names = [name.removesuffix(".py").removesuffix("/__init__") for name in contents(wheel) if name.endswith(".py")]
    return {name.replace("/", ".") for name in names}


def needed_modules() -> set[str]:
    """All that STARTS import, also inside functions, and the packages that these are in."""
    graph = {name: GRAPH[name] - ONLY_OF_DSUI.get(name, set()) for name in GRAPH} | LAZY
    found = set(STARTS).union(*(reachable_from(start, graph) for start in STARTS))
    return found | {".".join(name.split(".")[:depth]) for name in found for depth in range(1, name.count(".") + 1)}


def requirements(wheel: Path) -> dict[str, list[str]]:
    """Names of packages by the extra that brings them; "" for those that are always installed."""
    found: dict[str, list[str]] = {}
    for line in metadata(wheel).get_all("Requires-Dist", []):
        requirement, _, marker = line.partition(";")
        extra = marker.partition("==")[2].strip(" '\"")
        found.setdefault(extra, []).append(requirement.strip().split(">")[0])
    return found


def test_the_runtime_holds_all_that_its_commands_import(runtime: Path) -> None:
    assert sorted(needed_modules() - modules(runtime)) == []


def test_the_runtime_holds_nothing_but_that_and_the_three_rooms(runtime: Path) -> None:
    rooms = {"runtime", "monitoring", "serving"}
    more = modules(runtime) - needed_modules()
    assert sorted(name for name in more if name.split(".")[1] not in rooms) == []


def test_no_module_of_the_runtime_imports_a_heavy_package(runtime: Path) -> None:
    for name in modules(runtime):
        path = SOURCE / name.replace(".", "/")
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        found = set()
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found |= {each.name.split(".")[0] for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                found.add(node.module.split(".")[0])
        allowed = LIGHT | (OF_THE_COMMANDS if name.startswith("dsui.cli") else set())
        allowed |= OF_THE_SERVER if name.startswith("dsui.serving") else set()
        allowed |= {"pandas"} if name == "dsui.prediction" else set()  # where a user asks for a table
        assert found - set(sys.stdlib_module_names) - {"dsui"} <= allowed, name


def test_shared_files_are_the_same_in_both(runtime: Path, whole: Path) -> None:
    """So both may be installed, in either order."""
    own, others = contents(runtime), contents(whole)
    shared = {name for name in own if not name.split("/")[0].endswith(".dist-info")} - {"dsui/runtime/LICENSE"}
    assert sorted(name for name in shared if others.get(name) != own[name]) == []


def test_the_runtime_depends_on_no_pytorch(runtime: Path) -> None:
    assert metadata(runtime)["Name"] == "dsui-runtime"
    assert requirements(runtime) == {
        "": ["numpy", "onnxruntime", "pillow", "rich", "typer"],
        "serving": ["fastapi", "prometheus-client", "python-multipart", "uvicorn"],
    }


def test_dsui_depends_on_pytorch_and_holds_every_module(whole: Path) -> None:
    assert metadata(whole)["Name"] == "dsui"
    assert {"torch", "scikit-learn", "scipy", "numpy", "typer"} <= set(requirements(whole)[""])
    assert modules(whole) == set(GRAPH)
    assert "dsui/py.typed" in contents(whole)


def test_both_have_one_version_and_the_same_ranges() -> None:
    both = [tomllib.loads((folder / "pyproject.toml").read_text())["project"] for folder in (ROOT, RUNTIME)]
    ranges = [
        {line for group in (each["dependencies"], *each["optional-dependencies"].values()) for line in group}
        for each in both
    ]
    assert ranges[1] <= ranges[0]
    assert both[0]["requires-python"] == both[1]["requires-python"]
    assert both[0]["scripts"] == both[1]["scripts"]
