"""What `dsui reproduce` prints and writes: the plan of a study, and its tables and figures."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec

from dsui.cli.json_output import print_json
from dsui.cli.output import Format, write_table
from dsui.cli.progress import format_duration
from dsui.cli.reproduce_cells import (
    CellState,
    OpenedStudy,
    cell_states,
    count_states,
    estimates_by_cell,
    missing_data_notes,
)
from dsui.cli.terminal import print_line, stderr_console
from dsui.errors import DsuiError
from dsui.experiments.engines import visible_gpus
from dsui.experiments.estimate import Estimate
from dsui.experiments.grid import Cell
from dsui.experiments.speeds import CPU, GPU, Machine
from dsui.experiments.study import Study
from dsui.experiments.study_table import figure_csv, missing_notes, study_table
from dsui.report import table_forms
from dsui.report.tables import Table

FIGURE = "figure.csv"
DRAWS_WITH = "matplotlib"
TABLES = {"table.md": table_forms.to_markdown, "table.tex": table_forms.to_latex, "table.csv": table_forms.to_csv}
Needs = Mapping[str, Estimate | None]
"""How long a job still takes, by the key of its first cell."""


def print_plan(opened: OpenedStudy, cells: Sequence[Cell], machine: Machine, workers: int, *, as_json: bool) -> None:
    """Print what is done and what is not, and how long one device needs for the rest, line by line and in all.

    A study of one grid is listed cell by cell, that of all grids of the paper grid by grid.
    """
    study = opened.study
    needs = estimates_by_cell(study, study.jobs(cells, without_data=True), machine)
    states = cell_states(study, cells, needs, machine.together)
    if as_json:
        print_json({"study": study.out, "device": machine.device, "cells": [cell._asdict() for cell in states]})
        return
    several = len(opened.shown) > 1
    if several:
        _print_grids(opened, {cell.key for cell in cells}, machine)
    else:
        for cell in states:
            training = f"training: {_duration(cell.seconds)}" if cell.trains else ""
            print_line("  ".join(filter(None, (f"{cell.state:<12}", cell.name, cell.detail, training))))
    print_line(f"{len(states)} cell{'s' * (len(states) > 1)}: {count_states(states)}.")
    if needs:
        lines = {} if several else _by_line(cells, needs)
        for sentence in _time_sentences(lines, needs, machine, workers):
            print_line(sentence)
    for sentence in missing_data_notes(study, cells):
        print_line(sentence)


def print_results(
    opened: OpenedStudy, cells: Sequence[Cell], table_format: Format, *, published: bool, quiet: bool
) -> None:
    """Write the files of the study, print its tables, and say what is missing."""
    for part in opened.shown:
        table, files = _write_files(part, published)
        if table is not None and not (quiet and table_format is Format.terminal):
            write_table(table, table_format, None)
        sentences = missing_notes(part) if table is None else []
        if FIGURE in files:
            sentences.append(f"The figure's data are in {part.out / FIGURE}.")
            drawn = [str(part.out / name) for name in files if name.endswith(".svg")]
            sentences.append(f"It is drawn in {', '.join(drawn)}, and as PNG beside it." if drawn else _why_not_drawn())
        for sentence in sentences:
            stderr_console(quiet).print(sentence, soft_wrap=True, markup=False)
    if opened.study not in opened.shown:
        opened.study.collect()
    for sentence in missing_data_notes(opened.study, cells):
        stderr_console(quiet).print(sentence, soft_wrap=True, markup=False)


def print_results_json(opened: OpenedStudy, states: Sequence[CellState], *, published: bool) -> None:
    """Write the files of the study and print its cells and tables as JSON."""
    written = {part.grid.name: (part, *_write_files(part, published)) for part in opened.shown}
    tables = {
        name: None if table is None else json.loads(table_forms.to_json(table))
        for name, (_, table, _) in written.items()
    }
    print_json(
        {
            "study": opened.study.out,
            "cells": [cell._asdict() for cell in states],
            **({"tables": tables} if len(tables) > 1 else {"table": next(iter(tables.values()))}),
            "files": [part.out / name for part, _, names in written.values() for name in names],
        }
    )


def check_all_done(states: Sequence[CellState], minutes: float | None) -> None:
    """Raise if cells are left; `minutes` is how long the study was allowed to take."""
    left = {cell.state for cell in states} - {"done"}
    if minutes is not None and left & {"half-done", "trained", "to do"}:
        raise DsuiError(
            f"the time of {minutes:g} minutes is over ({count_states(states)}); what began and did not end has its "
            "checkpoint, nothing else began that would not have ended in time, and the same command continues."
        )
    if left:
        raise DsuiError(
            f"cells are left ({count_states(states)}); --dry-run says why, and the same command tries again."
        )


def _print_grids(opened: OpenedStudy, selected: set[str], machine: Machine) -> None:
    for part in opened.shown:
        cells = [cell for cell in part.grid.cells if cell.key in selected]
        if not cells:
            continue
        needs = estimates_by_cell(part, part.jobs(cells, without_data=True), machine)
        states = cell_states(part, cells)
        rest = f"; {_sum(needs, machine)} to go" if needs else ""
        print_line(f"{part.grid.name:<20}{len(cells):>4} cells: {count_states(states)}{rest}")


def _by_line(cells: Iterable[Cell], needs: Needs) -> dict[str, Needs]:
    """The jobs of each line of the table; a job that serves several lines belongs to the first."""
    lines: dict[str, dict[str, Estimate | None]] = {}
    for cell in cells:
        if cell.key in needs:
            lines.setdefault(cell.label, {})[cell.key] = needs[cell.key]
    return dict(lines)


def _time_sentences(lines: Mapping[str, Needs], needs: Needs, machine: Machine, workers: int) -> list[str]:
    """How long the rest takes, with its start and evaluation, and whose speed that is."""
    others = sorted({each.of for each in needs.values() if each is not None and each.of is not None})
    device = f"one {others[0] if machine.device == GPU and others else machine.device}"
    device = "this CPU" if machine.device == CPU else device
    sentences = [f"  {label}: {_sum(of_line, machine)}" for label, of_line in lines.items()] if len(lines) > 1 else []
    if sentences:
        sentences = [f"Still to come on {device}:", *sentences]
    devices = 1 if machine.device == CPU else math.ceil(workers / machine.together)
    devices = min(devices, max(1, len(visible_gpus())))
    split = f", {_sum(needs, machine, devices)} on {devices} of them" if devices > 1 else ""
    sentences.append(f"Still to come: {_sum(needs, machine)} on {device}{split}, with start and evaluation.")
    if others and machine.device != GPU:
        sentences.append(
            f"{machine.device} was not measured for all of them; some times are those of {', '.join(others)}."
        )
    if machine.device == CPU and any(each is None for each in needs.values()):
        sentences.append("The times on a GPU are estimated with --device cuda.")
    return sentences


def _sum(needs: Needs, machine: Machine, devices: int = 1) -> str:
    """The time of all jobs on this many devices, and how many jobs are not in it."""
    known = [each.seconds for each in needs.values() if each is not None]
    unknown = len(needs) - len(known)
    parts = [format_duration(math.fsum(known) / machine.together / devices)] if known else []
    parts += [f"{unknown} run{'s' * (unknown > 1)} of unknown length"] if unknown else []
    return " and ".join(parts)


def _duration(seconds: float | None) -> str:
    return "unknown" if seconds is None else format_duration(seconds)


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
