"""Recipes, overrides, grids and the configs of runs, damaged and forged."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import yaml
from hypothesis import strategies as st

from dsui.errors import RunError
from dsui.experiments.grid_file import load_grid
from dsui.methods.registry import names as method_names
from dsui.methods.registry import option_kinds
from dsui.runs.config import RunConfig
from dsui.runs.folder import RunFolder
from dsui.runs.recipe_file import FIELDS, load_recipe, method_options
from dsui.schema import SchemaError
from tests.support.digit_runs import digit_config
from tests.support.fuzzing import VALUES, attack, check, damaged, forged, parametrized
from tests.support.tiny_grid import TINY

RECIPES = [
    (resources.files("dsui.runs") / "recipes" / f"{name}.yaml").read_bytes() for name in ("demo", "modern", "paper")
]
GRIDS = [TINY.encode(), (resources.files("dsui.experiments") / "grids" / "ablation.yaml").read_bytes()]
YAML = (
    b"!!bool abc", b"!!timestamp abc", b"!!int ''", b"!!binary x", b"&a [*a]", b"*a", b"<<: ", b"[" * 50, b"{" * 50,
    b"? ", b"{x!r:>1000000000}", b"99999999999999999999", b"9" * 5000, b"0x" + b"f" * 300, b"1:" * 300 + b"1", b"null",
    b"[]", b"{}", b"- ", b": ", b"\t", b".nan", b".inf", b"- 1\n", b'"\\ud800"', b'"\\0"', b"~\x00",
    b"!!python/name:os.system x",
)  # fmt: skip
BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
SETTINGS = sorted({*FIELDS, *(option for method in method_names() for option in option_kinds(method))})


@parametrized(60)
def test_recipes(examples: int, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"

    def load(content: bytes) -> None:
        path.write_bytes(content)
        load_recipe(str(path), "cifar10")

    attack(load, damaged(RECIPES, YAML), examples)
    attack(load, st.sampled_from(YAML).map(lambda text: b"epochs: " + text), len(YAML))
    check(lambda: load(BOMB.encode()))
    check(lambda: load(b"epochs: " + BOMB.split("\n")[0].encode() + b"\n" + BOMB.encode()))


@parametrized(150)
def test_overrides(examples: int) -> None:
    def override(pair: tuple[str, object]) -> None:
        for method in ("dsui", "ensemble"):
            overrides, _ = method_options(method, dict([pair]))
            load_recipe("paper", "cifar10", overrides)

    texts = st.sampled_from(YAML).map(lambda text: text.decode()) | st.text(max_size=30)
    attack(override, st.tuples(st.sampled_from(SETTINGS) | st.text(max_size=8), VALUES | texts), examples)


@parametrized(40)
def test_grids(examples: int, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"

    def load(content: bytes) -> None:
        path.write_bytes(content)
        load_grid(str(path))

    attack(load, damaged(GRIDS, YAML), examples)
    check(lambda: load(BOMB.encode()))
    check(lambda: load(TINY.replace("[0]", "0").encode() + b"title: " + BOMB.encode()))


@parametrized(60)
def test_forged_grids(examples: int, tmp_path: Path) -> None:
    path, whole = tmp_path / "mine.yaml", yaml.safe_load(TINY)
    keys = dict.fromkeys(
        [
            "known",
            "held_out",
            "outliers",
            "size",
            "channels",
            "skip_bad",
            "as",
            "foreign",
            "epsilons",
            "detectors",
            "label",
            "set",
            "figure",
            "published",
            "reference",
        ]
    )

    def load(content: object) -> None:
        path.write_text(json.dumps(content))
        load_grid(str(path))

    attack(load, forged({**whole, **keys}), examples)


@parametrized(50)
def test_the_config_of_a_run(examples: int, tmp_path: Path) -> None:
    config = digit_config("ensemble")
    with RunFolder.create(tmp_path / "run", config) as folder:
        original = (folder.path / "config.yaml").read_bytes()

    def resume(content: bytes) -> None:
        (tmp_path / "run" / "config.yaml").write_bytes(content)
        with RunFolder.resume(tmp_path / "run", config):
            pass

    attack(resume, damaged([original], YAML), examples)
    check(lambda: resume(BOMB.encode()))
    texts = forged({**config.mapping(), "options": {"members": 3}}).map(lambda content: json.dumps(content).encode())
    attack(resume, texts, examples)


@parametrized(150)
def test_forged_mappings_of_a_config(examples: int) -> None:
    def read(content: dict[str, object]) -> None:
        try:
            RunConfig.from_mapping(content)
        except SchemaError as error:
            raise RunError(f"{error}.") from error  # whoever reads it names the file

    attack(read, forged({**digit_config("ensemble").mapping(), "options": {"members": 3}}), examples)
