"""What a study prints and writes when it is listed or has ended."""

from __future__ import annotations

import json
from collections.abc import Sequence

import typer

from dsui.cli import documents
from dsui.cli.bars import duration, notes
from dsui.cli.formats import Format, formatted
from dsui.cli.study_cells import CellState, counted, missing_data
from dsui.experiments.grid import Cell
from dsui.experiments.study import Study
from dsui.experiments.study_table import figure_csv, missing_notes, study_table
from dsui.report import table_forms
from dsui.report.tables import Table

FIGURE = "figure.csv"
TABLES = {"table.md": table_forms.to_markdown, "table.tex": table_forms.to_latex, "table.csv": table_forms.to_csv}


def show_list(study: Study, cells: Sequence[Cell], states: Sequence[CellState], workers: int) -> None:
    """Every cell with its state, and how long it may take, for a person."""
    for cell in states:
        known = "unknown" if cell.seconds is None else duration(cell.seconds)
        needs = f"training: {known}" if cell.trains else ""
        typer.echo("  ".join(filter(None, (f"{cell.state:<12}", cell.name, cell.detail, needs))))
    typer.echo(f"{len(states)} cell{'s' * (len(states) > 1)}: {counted(states)}.")
    to_train = [cell.seconds for cell in states if cell.trains]
    timed = [seconds for seconds in to_train if seconds is not None]
    if to_train:
        unknown = len(to_train) - len(timed)
        told = [f"{duration(sum(timed) / workers)} on {workers} worker{'s' * (workers > 1)}"] if timed else []
        told += [f"{unknown} run{'s' * (unknown > 1)} of unknown length, unlike any timed so far"] if unknown else []
        typer.echo(f"Training still to come: {', and '.join(told)}. Evaluation comes on top.")
    for sentence in missing_data(study, cells):
        typer.echo(sentence)


def show_results(study: Study, cells: Sequence[Cell], form: Format, quoted: bool, quiet: bool) -> None:
    """Write what is there, print the table, and say what is missing."""
    table, files = _written(study, quoted)
    if table is not None and not (quiet and form is Format.terminal):
        formatted(table, form, None)
    sentences = missing_notes(study) if table is None else []
    if FIGURE in files:
        sentences.append(f"The figure's data are in {study.out / FIGURE}.")
    for sentence in (*sentences, *missing_data(study, cells)):
        notes(quiet).print(sentence, soft_wrap=True, markup=False)


def show_document(study: Study, states: Sequence[CellState], quoted: bool) -> None:
    """The same for a program."""
    table, files = _written(study, quoted)
    documents.show(
        {
            "study": study.out,
            "cells": [cell._asdict() for cell in states],
            "table": None if table is None else json.loads(table_forms.to_json(table)),
            "files": [study.out / name for name in files],
        }
    )


def _written(study: Study, quoted: bool) -> tuple[Table | None, list[str]]:
    """The table, if the study has one, and the names of its files, written anew."""
    study.collect()
    table = study_table(study, quoted) if study.grid.table else None
    files = {} if table is None else {name: render(table) for name, render in TABLES.items()}
    if study.grid.figure is not None:
        files[FIGURE] = figure_csv(study, table)
    for name, text in files.items():
        study.write(name, text)
    return table, list(files)
