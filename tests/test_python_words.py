"""Sentences of the command line as a user of Python reads them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from dsui import UncertaintyClassifier
from dsui.python_words import in_python, spoken_in_python
from tests.support.fences import ROOT


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("choose --set batch=40 or less.", 'choose settings={"batch": 40} or less.'),
        ("lower it (--set peak_rate=...).", 'lower it (settings={"peak_rate": ...}).'),
        ("or --set neck=true --set dropout=0.2.", 'or settings={"neck": True, "dropout": 0.2}.'),
        ("leave out --set doubles; it", 'leave out "doubles" in settings; it'),
        ("train with --set doubles=none.", 'train with settings={"doubles": "none"}.'),
        ("balance by --balance sampling, or", 'balance by settings={"balance": "sampling"}, or'),
        ("choose --calibration 0.", "choose calibration=0."),
        ("a larger --calibration or more", "a larger calibration or more"),
        ("with --skip-bad.", "with skip_bad=True."),
        ("as in --backbone package.module:function, or", 'as in backbone="package.module:function", or'),
        ("nothing of that kind", "nothing of that kind"),
    ],
)
def test_options_become_arguments(sentence: str, expected: str) -> None:
    assert in_python(sentence) == expected


def test_an_error_keeps_its_kind() -> None:
    with pytest.raises(KeyError) as mistake, spoken_in_python():
        raise KeyError("choose --seed 3", 7)
    assert mistake.value.args == ("choose seed=3", 7)


IMAGES = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)


@pytest.mark.parametrize(
    "chosen",
    [
        {"settings": {"batch": 1000}},
        {"settings": {"peak_rate": 1e9, "epochs": 3, "batch": 8}},
        {"settings": {"epoch": 3}},
        {"settings": {"doubles": "turns"}, "method": "rotpred"},
        {"settings": {"batch": 8}, "method": "mc-dropout"},
        {"calibration": 3},
        {"method": "sde-net", "backbone": "vgg16"},
    ],
)
def test_errors_of_the_classifier_name_its_arguments(chosen: dict[str, object]) -> None:
    options = {"backbone": "small", "recipe": "demo", **chosen}
    with pytest.raises(Exception) as mistake:  # noqa: PT011 - of several kinds
        UncertaintyClassifier(**options).fit(IMAGES, np.arange(40) % 2)  # type: ignore[arg-type]
    assert not re.search(r"--[a-z]", str(mistake.value)), mistake.value


def test_every_setting_that_a_sentence_of_the_library_names_is_understood() -> None:
    """No "--set" is left of any sentence outside the command line."""
    files = [path for path in Path(ROOT, "src", "dsui").rglob("*.py") if not {"cli", "experiments"} & set(path.parts)]
    found = [match for path in files for match in re.findall(r"--set [a-z][^\"`]+", path.read_text(encoding="utf-8"))]
    assert len(found) > 8
    assert not [each for each in found if "--set" in in_python(each) and "(" not in each]
