"""Runs read back from their folders, on the embedded digits."""

from __future__ import annotations

import json
import os
import resource
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dsui.data.registry import load
from dsui.errors import DsuiError, RunError
from dsui.runs.config import RunConfig
from dsui.runs.folder import WEIGHTS
from dsui.runs.model import RunFacts, load_model, run_facts
from dsui.runs.weights import load_weights, read_metadata, save_weights
from tests.support.digit_runs import CPU, digit_config, own_copy, run


@pytest.mark.parametrize("method", ["msp", "dsui"])
def test_a_run_read_back_is_the_method_that_was_trained(method: str) -> None:
    facts = run_facts(run(method))
    assert facts.config == digit_config(method)
    assert facts.classes == tuple("0123456789")
    model = load_model(facts, CPU)
    assert not any(module.training for module in model.method.modules())
    weights, _ = load_weights(run(method) / WEIGHTS)
    assert all(torch.equal(value, weights[name]) for name, value in model.method.state_dict().items())
    test = load("digits", "test")
    with torch.no_grad():
        outputs = model.method.predict(model.transform.plain(test.read(torch.arange(797))))
    accuracy = (outputs.predictions == test.labels).double().mean().item()
    assert accuracy > 0.8  # 0.930 and 0.937 when written; chance is 0.1


def test_the_known_classes_of_a_run_are_its_own() -> None:
    facts = run_facts(run("dsui", known="0,1,2,3,4,5"))
    assert facts.classes == tuple("012345")
    assert facts.config.known == "0,1,2,3,4,5"


def test_a_run_is_named_by_its_folder_however_it_is_spelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_copy(run(), tmp_path / "msp-0")
    monkeypatch.chdir(tmp_path / "msp-0")
    assert run_facts(Path()).name == run_facts(tmp_path / "msp-0").name == "msp-0"
    assert run_facts(Path("../msp-0/.")).name == "msp-0"


def test_the_fingerprint_is_of_the_weights_and_of_nothing_else(tmp_path: Path) -> None:
    copy = own_copy(run(), tmp_path / "copy")
    (copy / "results.jsonl").write_text("{}")
    assert run_facts(copy).fingerprint() == run_facts(run()).fingerprint()
    shutil.copy(run("dsui") / WEIGHTS, copy / WEIGHTS)
    assert run_facts(copy).fingerprint() == run_facts(run("dsui")).fingerprint() != run_facts(run()).fingerprint()


def test_another_method_may_read_the_same_weights() -> None:
    facts = run_facts(run("dsui"), "dsui-density")
    assert (facts.config.method, facts.config.options) == ("dsui-density", {})
    load_model(facts, CPU)


def test_what_was_told_the_method_that_was_trained_stays_known(tmp_path: Path) -> None:
    config = json.loads(read_metadata(run("dsui") / WEIGHTS)["config"])
    copy = own_copy(run("dsui"), tmp_path / "copy")
    weights, metadata = load_weights(copy / WEIGHTS)
    told = {**metadata, "config": json.dumps({**config, "options": {"kappa": 16.0}})}
    save_weights(copy / WEIGHTS, weights, told)
    facts = run_facts(copy, "dsui-density")
    assert facts.config.options == {"kappa": 16.0}
    assert facts.training == run_facts(copy).training
    assert "kappa=16" in facts.training


@pytest.mark.parametrize("other", ["logitnorm", "dsui"])  # whose weights have the same shapes, and others
def test_a_method_that_trains_otherwise_is_refused(other: str) -> None:
    sentence = (
        rf"{other} does not predict with the weights of msp, .* --as may name msp or mc-dropout, and {other} needs"
    )
    with pytest.raises(RunError, match=sentence):
        run_facts(run(), other)


def test_weights_of_another_method_are_refused() -> None:
    facts = run_facts(run())
    with pytest.raises(RunError, match=r"does not hold the weights of dsui on small; choose another run"):
        load_model(replace(facts, config=replace(facts.config, method="dsui")), CPU)
    with pytest.raises(DsuiError, match="did you mean mc-dropout"):
        run_facts(run(), "mcdropout")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused_before_anything_is_predicted(tmp_path: Path, value: float) -> None:
    weights, facts = load_weights(run("dsui") / WEIGHTS)
    weights["head.means"].view(-1)[0] = value
    save_weights(tmp_path / WEIGHTS, weights, facts)
    with pytest.raises(RunError, match=r"holds NaN or infinity in head\.means; copy the file again or train"):
        load_model(run_facts(tmp_path), CPU)


def changed(tmp_path: Path, **metadata: str | None) -> Path:
    """The run with other facts in its weights."""
    weights, facts = load_weights(run() / WEIGHTS)
    known = {name: value for name, value in (facts | metadata).items() if value is not None}
    (tmp_path / "run").mkdir()
    save_weights(tmp_path / "run" / WEIGHTS, weights, known)
    return tmp_path / "run"


def config_with(**changes: object) -> str:
    return json.dumps(json.loads(read_metadata(run() / WEIGHTS)["config"]) | changes)


@pytest.mark.parametrize(
    "metadata", [{"config": None}, {"classes": None}, {"config": "{}"}, {"config": "[1]"}, {"classes": "{"}]
)
def test_weights_without_their_facts_are_refused(tmp_path: Path, metadata: dict[str, str | None]) -> None:
    with pytest.raises(RunError, match=r"was not written by `dsui train` of this version \(.*\); train the run again"):
        run_facts(changed(tmp_path, **metadata))


def test_weights_of_other_classes_than_they_say_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="does not hold the weights"):
        load_model(run_facts(changed(tmp_path, classes='["a", "b"]')), CPU)


def test_a_recipe_that_cannot_be_is_told(tmp_path: Path) -> None:
    with pytest.raises(DsuiError, match="epochs is -1; it must be between 1 and 100,000"):
        run_facts(changed(tmp_path, config=config_with(epochs=-1)))


def test_a_folder_without_weights_and_no_folder_at_all_are_told(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"model\.safetensors is missing; train the run to its end or choose another"):
        run_facts(tmp_path)
    for path in (tmp_path / "absent", run() / WEIGHTS):
        with pytest.raises(RunError, match=r"is not the folder of a run; name the --out of a `dsui train`"):
            run_facts(path)
    (tmp_path / WEIGHTS).write_bytes((run() / WEIGHTS).read_bytes()[:-1])
    with pytest.raises(RunError, match="is cut off"):
        run_facts(tmp_path)


def test_config_and_weights_say_the_same() -> None:
    assert RunConfig.from_mapping(json.loads(read_metadata(run() / WEIGHTS)["config"])) == run_facts(run()).config


def test_a_run_of_a_version_with_other_options_is_told() -> None:
    facts = run_facts(run())
    strange = replace(facts, config=replace(facts.config, options={"strange": 1}))
    with pytest.raises(RunError, match="was written by another version of dsui; use that one or train the run again"):
        load_model(strange, CPU)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"data": 5}, "data is 5; it must be text"),
        ({"options": None}, "options is None; it must be a mapping"),
        ({"options": {"samples": "x"}}, "options.samples is 'x'; it must be a whole number"),
        ({"channels": -3}, "channels is -3; it must be a whole number from 1 to 65,536"),
        ({"size": True}, "size is True; it must be a whole number"),
        ({"seed": 2**70}, "seed is 1180591620717411303424; it must be"),
        ({"epochs": "3"}, "epochs is '3'; it must be a whole number"),
        ({"epochs": 10**20}, "epochs is 100000000000000000000; it must be"),
        ({"mean": [None]}, r"mean\[0\] is None; it must be a number"),
        ({"optimizer": "lion"}, "optimizer is 'lion'; it must be one of adam, sgd"),
        ({"components": 1.5}, "components is 1.5; it must be a whole number"),
        ({"recipe": ["x"] * 1000}, r"recipe is \['x', 'x',"),
        ({"recipe": ["x"] * 10**6}, "config is '{"),
    ],
)
def test_a_config_of_another_kind_is_told_with_its_key_and_value(
    tmp_path: Path, change: dict[str, object], why: str
) -> None:
    with pytest.raises(RunError, match=rf"was not written by `dsui train` of this version \({why}") as raised:
        run_facts(changed(tmp_path, config=config_with(**change)))
    assert len(str(raised.value)) < 600


@pytest.mark.parametrize(
    "classes", ["null", "[]", "[1]", '["a", null]', json.dumps(["c"] * 100_001), json.dumps(["c" * 1001]), "[" * 9999]
)
def test_classes_of_another_kind_are_refused(tmp_path: Path, classes: str) -> None:
    with pytest.raises(RunError, match="was not written by `dsui train` of this version"):
        run_facts(changed(tmp_path, classes=classes))


def forged_facts(tmp_path: Path, classes: int = 10, **config: object) -> RunFacts:
    names = json.dumps([str(number) for number in range(classes)])
    return run_facts(changed(tmp_path, config=config_with(**config), classes=names))


@pytest.mark.parametrize(
    ("forged", "why"),
    [
        ({"method": "ensemble", "options": {"members": 10**9}}, "members must be between 1 and 100, got 1000000000"),
        ({"method": "ensemble", "options": {"members": 100}}, "does not hold the weights of ensemble on small"),
        ({"method": "dsui", "options": {"components": 10**9}}, "does not hold the weights of dsui on small"),
        ({"method": "sde-net", "options": {"samples": 10**9}}, "samples must be between 1 and 10,000"),
        ({"classes": 99_999}, "does not hold the weights of msp on small"),
        ({"channels": 1024}, "does not hold the weights of msp on small"),
    ],
)
def test_a_model_larger_than_its_file_is_not_built(tmp_path: Path, forged: dict[str, Any], why: str) -> None:
    """Before, a few bytes of metadata could take all memory, or build networks for hours."""
    facts = forged_facts(tmp_path, **forged)
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(RunError, match=why):
        load_model(facts, CPU)
    assert time.monotonic() - began < 20  # 0.5 s when written, on a machine at rest
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # kB


def test_numbers_of_another_kind_are_refused(tmp_path: Path) -> None:
    weights, facts = load_weights(run() / WEIGHTS)
    name = next(iter(weights))
    save_weights(tmp_path / WEIGHTS, {**weights, name: weights[name].to(torch.float8_e4m3fn)}, facts)
    with pytest.raises(RunError, match=r"holds numbers of the kind F8_E4M3, which dsui does not use; choose another"):
        load_model(run_facts(tmp_path), CPU)


def test_a_pipe_in_the_place_of_the_weights_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / WEIGHTS)
    with pytest.raises(RunError, match=r"cannot be read \(it is a pipe and not a file\); repair this or choose"):
        run_facts(tmp_path)
