"""The figures of README and docs are those of the committed rows, and a block shows what its keys say."""

from __future__ import annotations

import json
import re
import shutil
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dsui.errors import DsuiError
from dsui.evaluation.results import ResultRow
from dsui.evaluation.statistics import ALIKE, DIFFERENT
from dsui.experiments.grid_file import load_grid
from studies.document_blocks import BlockSpec, render_block
from studies.documents import FIGURES, find_documents, main, regenerate
from tests.support.result_row import ROW

ROOT = Path(__file__).parents[2]
DRAWN_BY = re.compile("<!-- matplotlib .* -->")
DATA = re.compile("<desc>.*?</desc>", re.DOTALL)
Repository = Callable[..., Path]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    def create(document: str, rows: list[ResultRow], labels: list[str] | None = None) -> Path:
        (tmp_path / "docs").mkdir(exist_ok=True)
        (tmp_path / "results").mkdir(exist_ok=True)
        (tmp_path / "docs" / "page.md").write_text(document)
        lines = [json.loads(row.to_json()) for row in rows]
        for line, label in zip(lines, labels or [], strict=False):
            line["label"] = label
        (tmp_path / "results" / "own.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return tmp_path

    return create


def block(spec: str) -> str:
    return f"Before.\n\n<!-- results: {spec} -->\nold\n<!-- end -->\n\nAfter.\n"


def cells(document: str) -> dict[str, list[str]]:
    """The lines of the only table by their label."""
    lines = [line for line in document.splitlines() if line.startswith("|")]
    return {name: rest for name, *rest in ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)}


def page(root: Path) -> str:
    return regenerate(root)[root / "docs" / "page.md"]


def accuracy(method: str, seed: int, value: float) -> ResultRow:
    facts = replace(ROW, method=method, run=f"{method}-{seed}", seed=seed, task="accuracy", foreign=None)
    return replace(facts, score="prediction", metrics={"accuracy": value})


def same_figure(committed: str, drawn: str) -> bool:
    """Byte for byte where the same matplotlib drew both; other versions draw otherwise, from the same numbers."""
    if DRAWN_BY.findall(committed) == DRAWN_BY.findall(drawn):
        return committed == drawn
    return DATA.findall(committed) == DATA.findall(drawn)


@pytest.fixture(scope="module")
def regenerated() -> dict[Path, str]:
    """The documents of this repository; making them takes seconds, so once for all tests."""
    return regenerate(ROOT)


def test_documents_and_figures_are_what_the_committed_rows_make_of_them(regenerated: dict[Path, str]) -> None:
    now = regenerated
    assert {"README.md", "paper.md", "results.md", "small-net.md", "method.md"} <= {path.name for path in now}
    for path, text in now.items():
        committed = path.read_text(encoding="utf-8")
        alike = same_figure(committed, text) if path.suffix == ".svg" else committed == text
        assert alike, f"{path.name} differs from results/; run `make tables`"


def test_no_figure_is_left_of_a_block_that_is_gone(regenerated: dict[Path, str]) -> None:
    assert set((ROOT / FIGURES).iterdir()) == {path for path in regenerated if path.suffix == ".svg"}


@pytest.mark.parametrize("file", ["cifar10-resnet18-paper", "trials", "starts", "geometry"])
def test_a_changed_row_changes_a_document(tmp_path: Path, file: str, regenerated: dict[Path, str]) -> None:
    """In a copy of the repository that holds only the documents with a block of this file."""
    shutil.copytree(ROOT / "results", tmp_path / "results")
    for path, text in regenerated.items():
        if path.suffix == ".md" and re.search(
            rf"^(file|experiment): .*\b{file}\b|results: .*\b{file}\b", text, re.MULTILINE
        ):
            (copy := tmp_path / path.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(text, encoding="utf-8")
    rows = tmp_path / "results" / f"{file}.jsonl"
    rows.write_text(
        re.sub(r'("(?:accuracy|auroc|within|errors AUROC)": )0\.\d', r"\g<1>0.1", rows.read_text(), count=2)
    )
    after = {path.relative_to(tmp_path): text for path, text in regenerate(tmp_path).items() if path.suffix == ".md"}
    assert after
    assert any(text != regenerated[ROOT / path] for path, text in after.items())


def test_a_cell_is_mean_and_deviation_of_the_runs_which_are_counted_for_each_line(repository: Repository) -> None:
    values = [0.9312, 0.9333, 0.9398]
    rows = [accuracy("dsui", seed, value) for seed, value in enumerate(values)]
    rows += [accuracy("msp", seed, value) for seed, value in enumerate([0.91, 0.92])]
    rows += [replace(accuracy("msp", 0, 0.0), task="noise", foreign="noise", score="entropy", metrics={"auroc": 0.8})]
    spec = (
        "{file: own, table: [{task: accuracy, metrics: accuracy, scores: prediction},"
        " {task: noise, metrics: auroc, scores: entropy}]}"
    )
    shown = cells(page(repository(block(spec), rows)))
    mean, deviation = 100 * statistics.mean(values), 100 * statistics.stdev(values)
    assert shown["dsui"] == ["3", f"**{mean:.2f} ± {deviation:.2f}**", "-"]
    assert shown["msp"] == ["1-2", "<ins>91.50 ± 0.71</ins> ✓", "80.00"]


def test_marks_stand_only_where_both_have_two_runs(repository: Repository) -> None:
    rows = [accuracy("dsui", seed, 0.95 + 0.0001 * seed) for seed in range(2)]
    rows += [accuracy("msp", seed, 0.90 + 0.0001 * seed) for seed in range(2)]
    rows += [accuracy("rkl", 0, 0.5)]
    spec = "{file: own, table: [{task: accuracy, metrics: accuracy, scores: prediction}]}"
    shown = cells(page(repository(block(spec), rows)))
    assert shown["msp"][1].endswith("✓")
    assert shown["rkl"] == ["1", "50.00"]


def test_marks_are_against_the_reference_of_the_block_or_the_grid(repository: Repository) -> None:
    rows = [accuracy(method, seed, 0.9 + 1e-4 * seed) for method in ("dsui", "msp") for seed in range(2)]
    spec = "{file: own, table: [{task: accuracy, metrics: accuracy, scores: prediction}], reference: msp}"
    assert cells(page(repository(block(spec), rows)))["dsui"][1].endswith("\u00d7")
    grid = "{file: own, grid: cifar10-parts, tasks: [accuracy]}"
    labels = ["all of DS-UI, K 8"] * 2 + ["linear head on the sphere"] * 2
    shown = cells(page(repository(block(grid), rows, labels)))
    assert {name: line[1][-1] for name, line in shown.items() if name in labels} == dict(
        zip(labels, "\u00d7\u00d7**", strict=True)
    )
    short = "{file: own, grid: cifar10-parts, short: true, tasks: [accuracy]}"
    assert "differs from linear head on the sphere," in page(repository(block(short), rows, labels))


def test_lines_are_the_labels_of_a_grid_in_its_order_whichever_way_rows_name_them(repository: Repository) -> None:
    grid = load_grid("cifar10-parts")
    by_recipe, labels = list[ResultRow](), list[str]()
    for cell in grid.cells:
        recipe = ", ".join(filter(None, (cell.config.recipe.name, cell.settings)))
        value = 0.9 + 0.001 * cell.config.seed + 0.01 * len(set(labels))
        by_recipe.append(replace(accuracy(cell.predictor, cell.config.seed, value), recipe=recipe, run=cell.run_name))
        labels.append(cell.label)
    by_method = [replace(row, method=label) for row, label in zip(by_recipe, labels, strict=True)]
    plain = [replace(row, recipe="whatever") for row in by_recipe]
    document = block("{file: own, grid: cifar10-parts}")
    shown = page(repository(document, by_recipe[::-1]))
    assert list(cells(shown))[2:] == list(dict.fromkeys(labels))
    assert {runs for runs, *_ in list(cells(shown).values())[2:]} == {"3"}
    assert page(repository(document, by_method[::-1])) == shown
    assert page(repository(document, plain[::-1], labels[::-1])) == shown


def test_runs_beyond_the_grid_are_shown_and_methods_without_a_figure_are_dashes(repository: Repository) -> None:
    rows = [accuracy("dsui", 0, 0.9), replace(accuracy("dsui", 0, 0.8), recipe="paper, rho=2", run="other")]
    rows += [replace(ROW, method="msp", run="msp-0", metrics={"auroc": 0.7})]
    shown = cells(page(repository(block("{file: own, grid: accuracy, tasks: [accuracy]}"), rows)))
    assert list(shown)[2:] == ["msp", "dsui", "dsui (paper, rho=2)"]
    assert shown["msp"] == ["-", "-"]


def test_rows_are_chosen_by_their_fields_and_by_method_or_label(repository: Repository) -> None:
    rows = [accuracy(method, seed, 0.9 + 0.01 * seed) for method in ("dsui", "msp", "rkl") for seed in (0, 1)]
    labels = ["ours", "ours", "linear head", "linear head", "rkl", "rkl"]
    spec = (
        "{file: own, where: {seed: 1, method: [dsui, linear head]},"
        " table: [{task: accuracy, metrics: accuracy, scores: prediction}]}"
    )
    shown = cells(page(repository(block(spec), rows, labels)))
    assert dict(list(shown.items())[2:]) == {"ours": ["1", "**91.00**"], "linear head": ["1", "**91.00**"]}


def test_of_two_rows_of_a_run_the_later_counts_and_old_rows_need_no_stream(repository: Repository) -> None:
    old = replace(accuracy("dsui", 0, 0.8), score=None, protocol="official test set")
    new = replace(accuracy("msp", 0, 0.9), protocol="accuracy, all in-domain images of test")
    rows = [old, new, replace(new, metrics={"accuracy": 0.91})]
    spec = "{file: own, table: [{task: accuracy, metrics: accuracy, scores: prediction}]}"
    document = page(repository(block(spec), rows))
    assert cells(document)["dsui"] == ["1", "<ins>80.00</ins>"]
    assert cells(document)["msp"] == ["1", "**91.00**"]
    assert "protocols" not in document


def test_a_figure_holds_its_numbers_and_is_the_same_twice(repository: Repository) -> None:
    sets = ("svhn", "cifar100")
    rows = [replace(ROW, foreign=name, metrics={"auroc": 0.8125 + 0.1 * at}) for at, name in enumerate(sets)]
    rows += [accuracy("msp", 0, 0.9)]
    spec = "{file: own, grid: ood-pairs, figure: pairs, table: [{task: ood, metrics: auroc, scores: entropy}]}"
    root = repository(block(spec), rows)
    first, second = regenerate(root), regenerate(root)
    assert first == second
    svg = first[root / FIGURES / "pairs.svg"]
    assert "0.8125" in DATA.findall(svg)[0]
    document = first[root / "docs" / "page.md"]
    assert "(figures/pairs.svg)" in document
    assert "dsui 81.2 at svhn, 91.2 at cifar100" in document
    assert "Number of runs: dsui 1." in document
    two = spec.replace("entropy", "[entropy, max_probability]")
    rows += [replace(row, score="max_probability") for row in rows[:2]]
    with pytest.raises(DsuiError, match="one panel"):
        page(repository(block(two), rows))


def test_the_numbers_of_another_drawing_program_decide_and_those_of_the_same_one_every_byte() -> None:
    drawing = "<svg><desc>0.81</desc><!-- matplotlib 1 --><path d='1'/></svg>"
    assert same_figure(drawing, drawing)
    assert not same_figure(drawing, drawing.replace("d='1'", "d='2'"))
    newer = drawing.replace("matplotlib 1", "matplotlib 2").replace("d='1'", "d='2'")
    assert same_figure(drawing, newer)
    assert not same_figure(drawing, newer.replace("0.81", "0.82"))


def test_only_blocks_are_written_and_indented_examples_are_not(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    example = "    <!-- results: {file: nothing} -->\n    <!-- end -->\n"
    spec = "{file: own, table: [{task: accuracy, metrics: accuracy, scores: prediction}]}"
    root = repository(example + block(spec), [accuracy("dsui", 0, 0.9)])
    main(root)
    written = (root / "docs" / "page.md").read_text()
    assert written.startswith(f"{example}Before.\n\n<!-- results: {spec} -->\n")
    assert written.endswith("<!-- end -->\n\nAfter.\n")
    assert "old" not in written
    assert "90.00" in written
    assert capsys.readouterr().out.count("updated") == 1
    main(root)
    assert capsys.readouterr().out == ""


def test_each_block_of_a_page_is_its_own(repository: Repository) -> None:
    spec = "{{file: own, where: {{method: {}}}, table: [{{task: accuracy, metrics: accuracy, scores: prediction}}]}}"
    document = block(spec.format("dsui")) + "Between.\n" + block(spec.format("msp"))
    written = page(repository(document, [accuracy("dsui", 0, 0.9), accuracy("msp", 0, 0.8)]))
    first, second = written.split("Between.\n")
    assert list(cells(first))[2:] == ["dsui"]
    assert list(cells(second))[2:] == ["msp"]
    assert written.count("Before.") == written.count("After.") == written.count("<!-- end -->") == 2


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ("<!-- results: {file: own} -->\n| 1 |\n", "without its end"),
        (block("{file: own, grid: cifar10-paper}").replace("old", "<!-- results: {} -->"), "without its end"),
        (block("{file: own, grad: x}"), "no key grad"),
        (block("just words"), "not a mapping"),
        (block("{file: ["), "expected"),
        (block("{file: own}"), "needs a grid or a table"),
        (block("{file: gone, grid: cifar10-paper}"), "gone.jsonl"),
        (block("{file: own, table: [{task: ood, metrics: auroc, scores: energy}]}"), "no row of own has auroc"),
    ],
)
def test_a_block_that_cannot_be_made_is_named(repository: Repository, document: str, sentence: str) -> None:
    root = repository(document, [accuracy("dsui", 0, 0.9)])
    with pytest.raises(DsuiError, match=sentence) as raised:
        regenerate(root)
    assert "page.md" in str(raised.value)


def test_the_papers_figures_stand_below_with_their_runs(repository: Repository) -> None:
    spec = BlockSpec.parse("{file: own, grid: cifar10-paper, tasks: [accuracy], published: table2}")
    root = repository("", [accuracy("dsui", 0, 0.9381)])
    lines = cells(render_block(spec, root / "results").markdown)
    assert list(lines)[-1] == "dsui †"
    assert lines["dsui †"] == ["5", "<ins>93.09 ± 0.04</ins>"]


def test_documents_are_those_of_the_top_and_of_docs(repository: Repository) -> None:
    root = repository("", [])
    (root / "README.md").touch()
    (root / "docs" / "methods").mkdir()
    (root / "docs" / "methods" / "dsui.md").touch()
    assert [path.name for path in find_documents(root)] == ["README.md", "dsui.md", "page.md"]


def test_a_short_table_has_means_marks_and_passes_under_the_titles_given(repository: Repository) -> None:
    rows = [accuracy("dsui", seed, 0.93 + 0.001 * seed) for seed in range(3)]
    rows += [accuracy("msp", seed, 0.91 + 0.001 * seed) for seed in range(2)]
    rows = [replace(row, metrics={**row.metrics, "passes": 1.0 if row.method == "dsui" else 50.0}) for row in rows]
    spec = (
        "{file: own, short: true, titles: [right], labels: {msp: baseline},"
        " table: [{task: accuracy, metrics: accuracy, scores: prediction}]}"
    )
    document = page(repository(block(spec), rows))
    shown = cells(document)
    assert shown["method"] == ["right % ↑", "passes"]
    assert shown["dsui"] == ["**93.10**", "1"]
    assert shown["baseline"] == ["91.05 ✓", "50"]
    assert "Means over 2 to 3 runs." in document
    assert "second best" not in document


def test_marks_are_corrected_for_all_tests_of_the_table(repository: Repository) -> None:
    """Two runs each: p is .037 for `near`. It is marked alone, and not beside two more tests."""
    runs = {"dsui": [0.930, 0.932], "near": [0.922, 0.919], "far": [0.930, 0.933], "other": [0.931, 0.934]}
    rows = [accuracy(name, seed, value) for name, values in runs.items() for seed, value in enumerate(values)]
    spec = "{{file: own, where: {{method: {}}}, table: [{{task: accuracy, metrics: accuracy, scores: prediction}}]}}"
    alone = cells(page(repository(block(spec.format("[dsui, near]")), rows)))
    together = page(repository(block(spec.format("[dsui, near, far, other]")), rows))
    assert alone["near"][1].endswith(DIFFERENT)
    assert cells(together)["near"][1].endswith(ALIKE)
    assert "Holm-corrected over 3 tests" in together


def test_columns_of_a_mean_are_chosen_by_its_name_and_means_are_of_all_its_sets(repository: Repository) -> None:
    sets = {"svhn": 0.9, "cifar100": 0.8, "photos": 0.1}
    rows = [replace(ROW, task="ood", score="entropy", foreign=name, metrics={"auroc": v}) for name, v in sets.items()]
    spec = (
        "{file: own, means: {foreign: [svhn, cifar100]},"
        " table: [{task: ood, foreign: foreign, metrics: auroc, scores: entropy}], titles: [mean]}"
    )
    assert cells(page(repository(block(spec), rows)))["dsui"] == ["1", "85.00"]


def test_a_wide_table_is_folded_and_a_narrow_one_is_not(repository: Repository) -> None:
    sets = [f"set{number}" for number in range(7)]
    rows = [replace(ROW, task="ood", score="entropy", foreign=name, metrics={"auroc": 0.5}) for name in sets]
    spec = "{{file: own, where: {{foreign: [{}]}}, table: [{{task: ood, metrics: auroc, scores: entropy}}]}}"
    assert "<details>" in page(repository(block(spec.format(", ".join(sets))), rows))
    assert "<details>" not in page(repository(block(spec.format(", ".join(sets[:5]))), rows))


@pytest.mark.parametrize("titles", ["[one]", "[one, two, three]"])
def test_titles_are_as_many_as_columns(repository: Repository, titles: str) -> None:
    spec = f"{{file: own, titles: {titles}, table: [{{task: accuracy, metrics: [accuracy, ece], scores: prediction}}]}}"
    rows = [replace(accuracy("dsui", 0, 0.9), metrics={"accuracy": 0.9, "ece": 0.1})]
    with pytest.raises(DsuiError, match=r"2 columns and \d titles"):
        page(repository(block(spec), rows))
