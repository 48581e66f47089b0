"""Rows of predictions are read in order, and a file that is no such file is told by its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsui.errors import DataError
from dsui.monitoring.predictions import read_labels, read_predictions

HEAD = "file,label,probability,uncertainty,log_density,knn,decision,reason,error\n"
GOOD = "a.png,cat,0.9,-1.5,20.0,3.0,accept,,\n"


def written(folder: Path, text: str, name: str = "rows.csv") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_scores_decisions_and_names_come_as_they_stand(tmp_path: Path) -> None:
    rows = HEAD + GOOD + "broken.png,,,,,,,,cannot be read\n'=b.png,dog,0.5,nan,-3,1,reject,uncertain,\n"
    found = read_predictions(written(tmp_path, rows))
    assert (found.files, found.labels, found.decisions) == (["a.png", "=b.png"], ["cat", "dog"], [True, False])
    assert found.scores["log_density"] == [-20.0, 3.0], "the score is minus the density"
    assert found.scores["knn"] == [3.0, 1.0]
    assert str(found.scores["uncertainty"]) == "[-1.5, nan]"
    assert (found.images, found.skipped) == (2, 1)


def test_json_lines_say_the_same(tmp_path: Path) -> None:
    row = {"file": "a.png", "label": "cat", "probability": 0.9, "uncertainty": -1.5, "log_density": 20.0, "knn": 3.0}
    row |= {"decision": "accept", "reason": None, "error": None}
    lines = read_predictions(written(tmp_path, json.dumps(row) + "\n", "rows.jsonl"))
    assert lines == read_predictions(written(tmp_path, HEAD + GOOD))


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        (
            "rows.csv",
            "file,label\na,b\n",
            "line 2 of .* has no column uncertainty; name a file that",
        ),
        ("rows.csv", HEAD + GOOD + "b.png,cat\n", "line 3 of .* is cut off or too long"),
        ("rows.csv", HEAD + GOOD.replace("accept", "perhaps"), "has the decision 'perhaps'; it must be"),
        ("rows.csv", HEAD + GOOD.replace("-1.5", "high"), "line 2 of .*: uncertainty is 'high'; it must be a number"),
        ("rows.csv", HEAD + GOOD + GOOD.replace("20.0", ""), "line 3 of .* has other scores than the rows before it"),
        ("rows.csv", HEAD + 'a,"b', "is not whole CSV"),
        ("rows.jsonl", "{", "is not whole JSONL"),
        ("rows.jsonl", "[1]\n", r"line 1 of .* is \[1\]; it must be a JSON object"),
        ("rows.jsonl", "[" * 100_000, "is not whole JSONL"),
        ("rows.txt", "", r"is neither \.csv nor \.jsonl"),
    ],
)
def test_what_is_no_file_of_predictions_is_told_in_one_sentence(
    tmp_path: Path, name: str, text: str, told: str
) -> None:
    with pytest.raises(DataError, match=told):
        read_predictions(written(tmp_path, text, name))


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.csv cannot be read \(No such file"):
        read_predictions(tmp_path / "none.csv")


def test_labels_need_two_columns(tmp_path: Path) -> None:
    assert read_labels(written(tmp_path, "file,label\na.png,cat\n")) == {"a.png": "cat"}
    with pytest.raises(DataError, match="has no file or no label"):
        read_labels(written(tmp_path, "name,label\na.png,cat\n"))
