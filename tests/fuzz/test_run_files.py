"""What lies in the folder of a run, damaged and forged: rows, log, weights and their metadata, checkpoint, outputs."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save, save_file

from dsui.errors import RunError
from dsui.evaluation.chunks import read_facts
from dsui.evaluation.results import read
from dsui.runs.checkpoint import load_state, save_state
from dsui.runs.log import read_log
from dsui.runs.model import load_model, run_facts
from dsui.runs.state_schema import check_state
from dsui.runs.weights import save_weights
from tests.support.fuzzing import VALUES, attack, check, check_sentence, damaged, forged, parametrized

RUN = Path(__file__).parents[1] / "fixtures" / "run-0.1.0"
ROWS = b"".join((RUN / "results.jsonl").read_bytes().splitlines(keepends=True)[:3])
LOG = (RUN / "log.jsonl").read_bytes()
JSON = (b"null", b"NaN", b"1e999", b"9" * 5000, b"[" * 2000, b'"\\ud800"', b"{}", b'"', b"true", b"\xff", b"\n")


@parametrized(100)
def test_rows(examples: int, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"

    def load(content: bytes) -> None:
        path.write_bytes(content)
        _, problems = read([path])
        for problem in problems:
            check_sentence(problem)

    attack(load, damaged([ROWS], JSON), examples)
    row = json.loads(ROWS.splitlines()[0])
    attack(load, forged(row).map(lambda content: json.dumps(content).encode()), examples)


@parametrized(100)
def test_logs(examples: int, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"

    def load(content: bytes) -> None:
        path.write_bytes(content)
        log = read_log(path)
        for problem in log.problems:
            check_sentence(problem)
        assert all(row["epoch"] >= 0 and row["seconds"] >= 0 for row in log.epochs)
        assert all(row.get("step", 0) <= row.get("step", 0) for row in log.rows)

    attack(load, damaged([LOG], JSON), examples)
    row = json.loads(LOG.splitlines()[0])
    attack(load, forged(row).map(lambda content: json.dumps(content).encode() + b"\n"), examples)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    shutil.copy(RUN / "model.safetensors", tmp_path / "run")
    return tmp_path / "run"


@parametrized(100)
def test_the_header_of_weights(examples: int, run: Path) -> None:
    path = run / "model.safetensors"
    content = path.read_bytes()
    size = 8 + int.from_bytes(content[:8], "little")
    header, rest = content[:size], content[size:]
    tokens = (b"F8_E4M3", b"I64", b"null", b"-1", b"[" * 500, b"{}", b'"', b"\x00", b"\xff" * 4, b"99999999")

    def load(changed: bytes) -> None:
        path.write_bytes(changed + rest)
        load_model(run_facts(run), torch.device("cpu"))

    attack(load, damaged([header], tokens), examples)


@parametrized(30)
def test_forged_facts_in_weights(examples: int, run: Path) -> None:
    path = run / "model.safetensors"
    tensors = load_file(path)
    with safe_open(path, framework="pt") as opened:
        metadata = opened.metadata()
    config, classes = json.loads(metadata["config"]), json.loads(metadata["classes"])

    def load(facts: tuple[Any, Any]) -> None:
        own = {**metadata, "config": json.dumps(facts[0]), "classes": json.dumps(facts[1])}
        save_weights(path, tensors, own)
        load_model(run_facts(run), torch.device("cpu"))

    attack(load, st.tuples(forged(config), st.just(classes)), examples)
    attack(load, st.tuples(st.just(config), VALUES), examples)
    for options in ({"members": 10**9}, {"members": 100, "member": "dsui"}, {"components": 10**9}, {"samples": 10**9}):
        for method in ("dsui", "ensemble", "sde-net"):
            check(lambda own=options, name=method: load(({**config, "method": name, "options": own}, classes)))  # type: ignore[misc]
    check(lambda: load((config, [str(number) for number in range(99_999)])))
    check(lambda: load((config, "c" * (1 << 23))))


@parametrized(60)
def test_checkpoints(examples: int, tmp_path: Path) -> None:
    path = tmp_path / "state.pt"
    tensor = torch.arange(4.0)
    whole = {
        "model": {"weight": tensor},
        "optimizers": [{"state": {0: {"exp_avg": tensor}}, "param_groups": [{"lr": tensor, "betas": (0.9, 0.999)}]}],
        "average": {"updates": torch.tensor(1), "average.weight": tensor},
        "meter": {"loss": tensor.sum()},
        "steps": 3,
        "phase": 0,
        "images": "abc",
    }
    save_state(path, whole)
    content = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    (pickled,) = (name for name in parts if name.endswith("data.pkl"))

    def load(changed: bytes) -> None:
        path.write_bytes(changed)
        if (state := load_state(path, "cpu")) is not None:
            check_state(state)

    def load_pickle(changed: bytes) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            for name, part in parts.items():
                archive.writestr(name, changed if name == pickled else part)
        load(path.read_bytes())

    attack(load, damaged([content]), examples)
    attack(load_pickle, damaged([parts[pickled]]), examples)
    attack(check_state, forged(whole), examples)
    load(content)


@parametrized(100)
def test_stored_outputs(examples: int, tmp_path: Path) -> None:
    path = tmp_path / "set-00000.safetensors"
    tensors = {"features": torch.zeros(3, 2), "logits": torch.zeros(3, 4), "labels": torch.zeros(3, dtype=torch.int64)}
    facts = {"count": "3", "seconds": "0.5", "passes": "1", "classes": '["a", "b"]', "device": "cpu"}
    whole = save(tensors, facts)

    def load(content: bytes, own: dict[str, str]) -> None:
        path.write_bytes(content)
        try:
            read_facts([path], own)
        except ValueError as error:
            raise RunError(f"{error}.") from error  # the cache computes such outputs again

    load(whole, facts)
    attack(lambda content: load(content, facts), damaged([whole], (b"F8_E4M3", b"logits", b"null", b"\x00")), examples)
    attack(lambda own: load(whole, own), forged(facts).map(_texts), examples)
    for part in tensors:
        save_file({name: each for name, each in tensors.items() if name != part}, path)
        with pytest.raises(ValueError, match=f"{part} is absent"):
            read_facts([path], facts)


def _texts(content: dict[str, object]) -> dict[str, str]:
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in content.items()}
