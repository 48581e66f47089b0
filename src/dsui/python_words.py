"""Sentences that name options of the command line, in the words of someone who calls from Python.

choose --set batch=40 or less        ->  choose settings={"batch": 40} or less
choose --calibration 0               ->  choose calibration=0
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

VALUE = r"(\.\.\.|[^\s,;)]*[^\s,;).:])"
NAMES = "(backbone|calibration|channels|device|method|recipe|seed|size|weights)"
SETTING = re.compile(rf"--set (\w+)={VALUE}")
SETTINGS = re.compile(rf"--set \w+={VALUE}(?: --set \w+={VALUE})*")
ALSO_SETTINGS = re.compile(r"--(balance|patience) (?=\w)")
"""Options that are settings of the recipe."""
UNSET = re.compile(r"--set (\w+)")
FLAG = re.compile(r"--skip-bad\b")
GIVEN = re.compile(rf"--{NAMES} (?!(?:and|for|in|is|of|or|to|with)\b){VALUE}")
OPTION = re.compile(rf"--{NAMES}\b")
NUMBER = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?")


def in_python(sentence: str) -> str:
    """The sentence with the arguments of `UncertaintyClassifier` in place of options."""
    sentence = SETTINGS.sub(_settings, ALSO_SETTINGS.sub(r"--set \1=", sentence))
    sentence = UNSET.sub(r'"\1" in settings', sentence)
    sentence = FLAG.sub("skip_bad=True", sentence)
    sentence = GIVEN.sub(lambda found: f"{found[1]}={_literal(found[2])}", sentence)
    return OPTION.sub(r"\1", sentence)


@contextmanager
def spoken_in_python() -> Iterator[None]:
    """Within it the sentence of an error is one `in_python`."""
    try:
        yield
    except Exception as error:
        if error.args and isinstance(error.args[0], str):
            error.args = (in_python(error.args[0]), *error.args[1:])
        raise


def _settings(found: re.Match[str]) -> str:
    pairs = (f'"{name}": {_literal(value)}' for name, value in SETTING.findall(found[0]))
    return f"settings={{{', '.join(pairs)}}}"


def _literal(value: str) -> str:
    """A value of the command line as Python writes it; "N" and "..." stand for any value."""
    if value in {"N", "..."} or NUMBER.fullmatch(value):
        return value
    return {"true": "True", "false": "False", "null": "None"}.get(value, f'"{value}"')
