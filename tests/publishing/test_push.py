"""A run on the hub: what is written and uploaded, how it comes back, and what is refused, by a stand-in of the hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard, constants

from dsui.data.registry import load
from dsui.deploy.predictor import Predictor
from dsui.errors import DsuiError
from dsui.evaluation.results import read
from dsui.hub import FILES
from tests.support.command_line import dsui, exit_status
from tests.support.digit_runs import HELD_OUT, calibrated, own_copy, run
from tests.support.stand_in_hub import TOKEN, Hub, running_hub

IMAGES = load("digits", "test").read(torch.arange(50))
NAME = "hf:me/digits"
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
"""huggingface_hub uploads by an argument that its own HTTP library deprecates."""
OURS = b'{"library_name": "dsui", "format": 1}'


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two evaluated runs that differ in the seed; the first keeps a threshold."""
    root = tmp_path_factory.mktemp("runs")
    found = [own_copy(calibrated(), root / "a"), own_copy(run("dsui", seed=1, held_out=HELD_OUT), root / "b")]
    predictor = Predictor.load(found[0], "cpu")
    predictor.threshold(0.9)
    predictor.save_threshold()
    assert dsui("evaluate", *found, "--tasks", "misclassification,noise", "--quiet").exit_code == 0
    return found


def use_hub(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What HF_ENDPOINT does for a new process."""
    monkeypatch.setattr(constants, "ENDPOINT", address)
    template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Where huggingface_hub finds the hub, with a token and a cache of its own."""
    with running_hub() as server:
        use_hub(server.address, monkeypatch)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache" / "hub"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield server


def test_a_pushed_run_comes_back_with_the_same_answers_and_nothing_else(runs: list[Path], hub: Hub) -> None:
    told = json.loads(dsui("push", runs[0], NAME, "--json", "--quiet").stdout)
    assert told["commit"].startswith(f"{hub.address}/me/digits/commit/")
    files = hub.commits[hub.branches["me/digits"]["main"]]
    assert set(files) == {".gitattributes", *FILES}
    hub.commit("me/digits", "main", files | {"state.pt": b"a pickle", "more.safetensors": b""})
    found, wanted = Predictor.load(NAME, "cpu"), Predictor.load(runs[0], "cpu")
    assert set(hub.fetched) == set(FILES)
    assert found.chosen == wanted.chosen
    said, expected = found.predict(IMAGES), wanted.predict(IMAGES)
    np.testing.assert_array_equal(said.probabilities, expected.probabilities)
    assert said.abnormal is not None
    np.testing.assert_array_equal(said.abnormal, expected.abnormal)
    with pytest.raises(DsuiError, match="is the cache of the hub"):
        found.save_threshold()


def test_a_revision_is_that_run_also_when_the_newest_is_another(runs: list[Path], hub: Hub) -> None:
    first = json.loads(dsui("push", runs[0], NAME, "--json").stdout)["commit"].rpartition("/")[2]
    assert dsui("push", runs[1], NAME, "--quiet").exit_code == 0
    assert dsui("push", runs[0], f"{NAME}@draft", "--quiet").exit_code == 0
    newest = hub.commits[hub.branches["me/digits"]["main"]]
    assert "thresholds.safetensors" not in newest  # the second run keeps none
    weights = [Predictor.load(name, "cpu").model.facts.fingerprint() for name in (f"{NAME}@{first}", f"{NAME}@draft")]
    assert weights == [Predictor.load(runs[0], "cpu").model.facts.fingerprint()] * 2
    assert Predictor.load(NAME, "cpu").model.facts.config.seed == 1


def test_the_command_predicts_by_name_and_offline_by_what_it_fetched(
    runs: list[Path], hub: Hub, tmp_path: Path
) -> None:
    assert dsui("push", runs[0], NAME, "--quiet").exit_code == 0
    own = {"HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path / "home")}
    answers = []
    for offline in ("0", "1"):
        words = [sys.executable, "-m", "dsui", "predict", NAME, "missing.png"]
        found = subprocess.run(
            words, env=os.environ | own | {"HF_HUB_OFFLINE": offline}, capture_output=True, text=True, check=False
        )
        assert "missing.png,,,,,,,there is no such file" in found.stdout
        answers.append(found.stderr)
    assert answers[0] == answers[1]
    assert "Accepting uncertainty up to" in answers[0]
    assert "Next:" not in answers[0]  # nothing can be done to a model in the cache


def test_the_card_has_the_figures_of_the_rows_with_deviations_and_what_the_threshold_promises(
    runs: list[Path], tmp_path: Path
) -> None:
    folder = tmp_path / "card"
    told = json.loads(
        dsui("push", runs[0], NAME, "--also", runs[1], "--out", folder, "--json", "--license", "mit").stdout
    )
    assert (told["commit"], told["files"]) == (None, sorted(FILES))
    card = ModelCard.load(folder / "README.md")
    rows = [row for each in runs for row in read([each / "results.jsonl"])[0]]
    accuracies = [row.metrics["accuracy"] for row in rows if (row.task, row.score) == ("accuracy", "prediction")]
    assert len(accuracies) == 2
    results = {each.dataset_config: each for each in card.data.eval_results or []}
    assert set(results) == {"classification", "finding errors", "finding noise"}
    found = results["classification"]
    assert found.metric_value == pytest.approx(np.mean(accuracies), abs=1e-12)
    assert found.metric_args == {"runs": 2, "deviation": pytest.approx(np.std(accuracies, ddof=1), abs=1e-12)}
    assert (card.data.library_name, card.data.license) == ("dsui", "mit")
    mean, deviation = 100 * np.mean(accuracies), 100 * np.std(accuracies, ddof=1)
    assert f"{mean:.2f} ± {deviation:.2f}" in card.text
    assert "Of images like the training images at least 0.9 are accepted, on average over draws of the 200" in card.text
    for part in ("## Use", f'Predictor.load("{NAME}")', "## Data", "## Limits", "seeds 0, 1"):
        assert part in card.text


def test_a_run_that_was_not_evaluated_says_so(tmp_path: Path) -> None:
    bare = own_copy(calibrated(), tmp_path / "bare")
    printed = dsui("push", bare, NAME, "--out", tmp_path / "card")
    assert "the run was not evaluated, so its card has no figures" in printed.stderr
    card = ModelCard.load(tmp_path / "card" / "README.md")
    assert "It was not evaluated, so it is unknown whether to trust it." in card.text
    assert "It keeps no threshold" in card.text
    assert card.data.eval_results is None


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"config.json": b'{"model_type": "vit"}', "model.safetensors": b""}, "is no model of dsui"),
        ({"pytorch_model.bin": b"a pickle"}, "is no model of dsui"),
        ({"config.json": b'{"library_name": "dsui", "format": 2}'}, "was written by another version of dsui"),
        (
            {"config.json": b'{"library_name": "dsui", "format": 1}', "model.safetensors": b"a pickle"},
            "is cut off or not",
        ),
    ],
)
def test_a_foreign_model_is_one_sentence(
    files: dict[str, bytes], sentence: str, hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.commit("you/net", "main", files)
    assert exit_status("predict", "hf:you/net", "a.png") == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert sentence in printed.err
    assert "pytorch_model.bin" not in hub.fetched


def test_what_cannot_be_done_is_one_sentence(
    runs: list[Path], hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*words: object, status: int = 1) -> str:
        assert exit_status(*words) == status
        return capsys.readouterr().err.removeprefix("dsui: ").rstrip("\n")

    hub.commit("me/digits", "main", {})
    for files in ({"config.json": b"{}"}, {"model.safetensors": b""}):
        theirs = hub.commit("you/net", "main", files)
        assert told("push", runs[0], "hf:you/net") == "hf:you/net holds another model; choose a new name."
        assert hub.branches["you/net"] == {"main": theirs}
    assert told("predict", "hf:me", "a.png").startswith("'hf:me' is no model of the hub; write hf:USER/NAME")
    assert told("predict", "hf:me/none", "a.png").startswith("hf:me/none is not on the hub, or you may not use it;")
    assert told("predict", f"{NAME}@v9", "a.png").startswith(f"{NAME}@v9: there is no such revision;")
    assert told("push", runs[0], "me/digits", status=2) == "me/digits is no name on the hub; write hf:USER/NAME."
    other = run("msp", epochs=1)
    assert "were trained with other settings" in told("push", runs[0], NAME, "--also", other, "--out", tmp_path / "x")
    assert "holds the weights of another run" in told("push", runs[0], NAME, "--also", runs[0], "--out", tmp_path / "x")
    assert told("push", runs[0], NAME, "--out", runs[1]) == f"{runs[1]} holds other files; choose a new --out."
    monkeypatch.setenv("HF_TOKEN", "wrong")
    assert told("push", runs[0], "hf:me/new").startswith("hf:me/new is not on the hub, or you may not use it;")
    use_hub("http://127.0.0.1:9", monkeypatch)
    assert told("predict", NAME, "a.png").startswith(f"{NAME} is not on this machine, and the hub cannot be reached;")
