"""Numbers in sentences are those of the rows, and no measured number stands there by itself."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dsui.evaluation.results import ResultRow
from studies.document_blocks import WIDEST
from studies.document_numbers import NumberReader
from tests.support.result_row import ROW

ROOT = Path(__file__).parents[2]
SOURCES = "<!-- sources:\nown: {file: own}\n-->\n\n"
QUOTED_PAGES = ["README.md", "docs/results.md", "docs/method.md", "docs/methods/*.md", "docs/log/*.md"]
LOG = "docs/log"
GENERATED = re.compile(r"^<!-- results:.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"-?[\d,.]+(?: ± [\d.]+)?<!--\s+=\s.*?-->", re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
CODE = re.compile(r"^```.*?^```$|^ {4,}\S.*?$|`[^`]+`", re.MULTILINE | re.DOTALL)
TARGET = re.compile(r"\]\([^)]*\)")
DECIMAL = re.compile(r"(?<![\w.])-?\d+\.\d+")
WITHOUT_ROWS = re.compile(r"\b(?:no|without) rows\b")


def figure(value: float, run: int, **facts: Any) -> ResultRow:
    shown: dict[str, Any] = {
        "task": "misclassification",
        "foreign": None,
        "score": "entropy",
        "metrics": {"aurc": value},
        **facts,
    }
    return replace(ROW, run=f"{facts.get('method', 'dsui')}-{run}", seed=run, **shown)


@pytest.fixture
def quoted(tmp_path: Path) -> NumberReader:
    rows = [figure(value, run) for run, value in enumerate((0.00725, 0.00731))]
    rows += [figure(0.0146, run, method="msp") for run in range(2)]
    rows += [figure(0.5, 0, task="ood", foreign="svhn", metrics={"auroc": 0.98765})]
    rows += [figure(0.5, 0, task="fgsm", foreign=0.1, metrics={"auroc": 0.5})]
    (tmp_path / "own.jsonl").write_text("".join(f"{row.to_json()}\n" for row in rows))
    return NumberReader(tmp_path)


@pytest.mark.parametrize(
    ("written", "comment", "made"),
    [
        ("0.00", "dsui; misclassification; entropy; aurc", "7.28"),
        ("9", "dsui; misclassification; entropy; aurc", "7"),
        ("0.000 ± 9.99", "dsui; misclassification; entropy; aurc", "7.280 ± 0.04"),
        ("1.0", "msp / dsui; misclassification; entropy; aurc", "2.0"),
        ("-1.0", "dsui - msp; misclassification; entropy; aurc", "-7.3"),
        ("1.00", "dsui; ood svhn; entropy;\nauroc", "98.77"),
        ("1.0", "dsui; fgsm 0.1; entropy; auroc", "50.0"),
    ],
)
def test_a_number_is_the_mean_of_its_rows_with_the_decimals_that_stand_there(
    quoted: NumberReader, written: str, comment: str, made: str
) -> None:
    before, after = f"{SOURCES}It is ", f"<!-- = own; {comment} --> here, and 3.14 stays."
    assert quoted.replace(before + written + after) == before + made + after


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("7.28 <!-- = own; dsui; misclassification; entropy; aurc -->", "no number before it"),
        ("7.28<!-- = own; dsui; misclassification; aurc -->", "is not SOURCE; LINE"),
        ("7.28<!-- = other; dsui; misclassification; entropy; aurc -->", "source that the page does not have: other"),
        ("7.28<!-- = own; rkl; misclassification; entropy; aurc -->", "no row of own has this figure of 'rkl'"),
        ("7.28<!-- = own; dsui; misclassification; energy; aurc -->", "no row of own"),
    ],
)
def test_a_quotation_that_cannot_be_read_is_named(quoted: NumberReader, text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        quoted.replace(SOURCES + text)


def unquoted(text: str, log: bool) -> list[str]:
    """The decimals of the prose that come neither from rows nor stand as code; in the log also those that are said to
    have no rows."""
    prose = TARGET.sub("]", COMMENT.sub("", CODE.sub("", QUOTED.sub("", GENERATED.sub("", text)))))
    parts = re.split(r"\n\n|\n(?=\* )", prose)
    return [number for part in parts if not (log and WITHOUT_ROWS.search(part)) for number in DECIMAL.findall(part)]


@pytest.mark.parametrize("pattern", QUOTED_PAGES)
def test_every_decimal_in_prose_is_quoted_or_a_setting(pattern: str) -> None:
    """Measured: quote it (`studies.document_numbers`). A setting or a constant: write it as `code`. In docs/log a
    number of a trial whose rows were not kept stands in a paragraph that says "no rows"."""
    pages = sorted(ROOT.glob(pattern))
    assert pages
    for page in pages:
        found = unquoted(page.read_text(encoding="utf-8"), log=pattern.startswith(LOG))
        assert not found, (
            f"{page.relative_to(ROOT)} has {', '.join(found)}: quote them from rows, or write settings as `code`"
        )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It has 93.5 % and 7.27<!-- = own; dsui; accuracy; prediction; accuracy -->.", ["93.5"]),
        ("A rate of `0.1`, 12 % and\n\n    x = 0.5\n\n```\n0.7\n```\nof [it](a-1.5.md).", []),
        ("It lost 3.4 points (no rows).\n\nIt won 4.5.", ["3.4", "4.5"]),
        ("<!-- results: {file: own} -->\n| 1.5 |\n<!-- end -->\n| 2.5 |", ["2.5"]),
    ],
)
def test_the_search_for_numbers_sees_prose_and_tables_made_by_hand(text: str, found: list[str]) -> None:
    assert unquoted(text, log=False) == found


def test_in_the_log_numbers_without_rows_are_called_so() -> None:
    assert unquoted("It lost 3.4 points (no rows).\n\nIt won 4.5.", log=True) == ["4.5"]


def test_tables_of_the_readme_fit_a_hundred_characters() -> None:
    wide = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("|") and len(line) > 100]
    assert not wide


@pytest.mark.parametrize("pattern", QUOTED_PAGES)
def test_no_page_shows_a_wide_table_unfolded(pattern: str) -> None:
    """Two of a line's bars are those of its label."""
    for page in ROOT.glob(pattern):
        text = re.sub(r"<details>.*?</details>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        headers = [line for line in text.splitlines() if line.startswith("| method")]
        assert all(header.count("|") - 2 <= WIDEST for header in headers), page.relative_to(ROOT)


def test_lines_of_one_method_are_told_apart_as_in_tables(tmp_path: Path) -> None:
    rows = [figure(value, 0, recipe=recipe) for recipe, value in (("paper", 0.007), ("modern", 0.004))]
    (tmp_path / "own.jsonl").write_text("".join(f"{row.to_json()}\n" for row in rows))
    reader = NumberReader(tmp_path)
    page = SOURCES + "9.0<!-- = own; dsui{}; misclassification; entropy; aurc -->"
    assert "7.0<!--" in reader.replace(page.replace("{}", " (paper)"))
    assert "4.0<!--" in reader.replace(page.replace("{}", " (modern)"))
    with pytest.raises(ValueError, match="no row of own"):
        reader.replace(page.replace("{}", ""))


def test_sentences_on_calibration_repeat_figures_of_the_tables_beside_them() -> None:
    text = (ROOT / "docs/evaluation.md").read_text(encoding="utf-8")
    section = text.partition("\n## Why are probabilities scaled?\n")[2]
    tables = " ".join(GENERATED.findall(section))
    told = DECIMAL.findall(CODE.sub("", GENERATED.sub("", section)))
    assert len(told) > 3
    assert set(told) <= set(DECIMAL.findall(tables))


def test_a_paragraph_that_names_a_benchmark_repeats_figures_of_its_page() -> None:
    """Decisions are left out: they tell of earlier forms too."""
    told: list[str] = []
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for paragraph in re.split(r"\n\s*\n", page.read_text(encoding="utf-8")):
            pages = {ROOT / name for name in re.findall(r"benchmarks/[\w-]+\.md", paragraph)}
            if not pages or page.stem == "decisions":
                continue
            known = {figure for each in pages for figure in DECIMAL.findall(each.read_text(encoding="utf-8"))}
            found = DECIMAL.findall(TARGET.sub("", paragraph))
            assert set(found) <= known, page.relative_to(ROOT)
            told += found
    assert len(told) > 4


@pytest.mark.parametrize("page", sorted((ROOT / "benchmarks").glob("*.md")), ids=lambda page: page.stem)
def test_a_page_of_benchmarks_names_the_program_that_printed_it(page: Path) -> None:
    program = re.search(
        r"(?:Generated by|Copied from what an earlier form printed of) `python (benchmarks/\w+\.py)[^`]*`\.",
        "\n".join(page.read_text().splitlines()[:3]),
    )
    assert program
    assert (ROOT / program[1]).is_file()
