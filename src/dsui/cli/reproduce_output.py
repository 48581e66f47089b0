"""What `dsui reproduce` prints and writes: the list of cells, and the table and figure of a study."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.util import find_spec

from dsui.cli.output import Format, print_json, write_table
from dsui.cli.progress import format_duration
from dsui.cli.reproduce_cells import CellState, count_states, missing_data_notes
from dsui.cli.terminal import print_line, stderr_console
from dsui.experiments.grid import Cell
from dsui.experiments.study import Study
from dsui.experiments.study_table import figure_csv, missing_notes, study_table
from dsui.report import table_forms
from dsui.report.tables import Table

FIGURE = "figure.csv"
DRAWS_WITH = "matplotlib"
TABLES = {"table.md": table_forms.to_markdown, "table.tex": table_forms.to_latex, "table.csv": table_forms.to_csv}


def print_cells(study: Study, cells: Sequence[Cell], states: Sequence[CellState], workers: int) -> None:
    """Print every cell with its state, and how long the training will take."""
    for cell in states:
        time = "unknown" if cell.seconds is None else format_duration(cell.seconds)
        training = f"training: {time}" if cell.trains else ""
        print_line("  ".join(filter(None, (f"{cell.state:<12}", cell.name, cell.detail, training))))
    print_line(f"{len(states)} cell{'s' * (len(states) > 1)}: {count_states(states)}.")
    to_train = [cell.seconds for cell in states if cell.trains]
    timed = [seconds for seconds in to_train if seconds is not None]
    if to_train:
        untimed = len(to_train) - len(timed)
        parts = [f"{format_duration(sum(timed) / workers)} on {workers} worker{'s' * (workers > 1)}"] if timed else []
        parts += [f"{untimed} run{'s' * (untimed > 1)} of unknown length, unlike any timed so far"] if untimed else []
        print_line(f"Training still to come: {', and '.join(parts)}. Evaluation comes on top.")
    for sentence in missing_data_notes(study, cells):
        print_line(sentence)


def print_results(study: Study, cells: Sequence[Cell], table_format: Format, *, published: bool, quiet: bool) -> None:
    """Write the files of the study, print its table, and say what is missing."""
    table, files = _write_files(study, published)
    if table is not None and not (quiet and table_format is Format.terminal):
        write_table(table, table_format, None)
    sentences = missing_notes(study) if table is None else []
    if FIGURE in files:
        sentences.append(f"The figure's data are in {study.out / FIGURE}.")
        drawn = [str(study.out / name) for name in files if name.endswith(".svg")]
        sentences.append(f"It is drawn in {', '.join(drawn)}, and as PNG beside it." if drawn else _why_not_drawn())
    for sentence in (*sentences, *missing_data_notes(study, cells)):
        stderr_console(quiet).print(sentence, soft_wrap=True, markup=False)


def print_results_json(study: Study, states: Sequence[CellState], *, published: bool) -> None:
    """Write the files of the study and print its cells and table as JSON."""
    table, files = _write_files(study, published)
    print_json(
        {
            "study": study.out,
            "cells": [cell._asdict() for cell in states],
            "table": None if table is None else json.loads(table_forms.to_json(table)),
            "files": [study.out / name for name in files],
        }
    )


def _write_files(study: Study, published: bool) -> tuple[Table | None, list[str]]:
    """The table, if the study has one, and the names of the files that were written."""
    study.collect()
    table = study_table(study, published) if study.grid.table else None
    files: dict[str, str | bytes] = {}
    if table is not None:
        files.update((name, render(table)) for name, render in TABLES.items())
    if study.grid.figure is not None:
        files[FIGURE] = figure_csv(study, table)
        files.update(_draw(study))
    for name, content in files.items():
        study.write(name, content)
    return table, list(files)


def _draw(study: Study) -> dict[str, str | bytes]:
    """The figures as SVG and PNG. A study that has trained for days does not fail because it cannot be drawn."""
    if find_spec(DRAWS_WITH) is None:
        return {}
    from dsui.experiments.study_figures import draw_study
    from dsui.report.figures.canvas import to_png, to_svg

    files: dict[str, str | bytes] = {}
    for drawing in draw_study(study):
        files[f"{drawing.name}.svg"], files[f"{drawing.name}.png"] = to_svg(drawing), to_png(drawing)
    return files


def _why_not_drawn() -> str:
    if find_spec(DRAWS_WITH) is None:
        return f"It is not drawn, because {DRAWS_WITH} is missing: pip install {DRAWS_WITH}, then repeat this command."
    return "It is not drawn yet, because no cell of it is done."
