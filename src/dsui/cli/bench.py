"""`dsui bench`: the ratios of the committed benchmarks, measured on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dsui.cli.arguments import parse_names
from dsui.cli.json_output import print_json
from dsui.cli.names import completion
from dsui.cli.output import Format, TableFile, TableFormat, check_format, write_table
from dsui.cli.plain_arguments import Json, Quiet

if TYPE_CHECKING:
    from dsui.benchmarks.ratios import Committed, Ratio
    from dsui.report.tables import Table

NAMES = ("head", "step", "evaluation", "serving")


def bench(
    what: Annotated[
        str,
        typer.Argument(
            metavar="NAMES",
            help=f"What to measure, as in head,step: {', '.join(NAMES)}, or all.",
            autocompletion=completion(lambda: NAMES),
        ),
    ] = "all",
    full: Annotated[
        bool, typer.Option("--full", help="Measure as much as the committed runs did: minutes, and steadier ratios.")
    ] = False,
    out: TableFile = None,
    table_format: TableFormat = Format.terminal,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure how fast dsui is on this machine, beside the committed ratios.

    Each ratio compares dsui with a usual way to do the same, in the same run: the mixture head with two other
    implementations, a training step with an ordinary loop and with a linear head, the evaluation of 14 detectors with a
    pass of the network for each, the server with ONNX Runtime alone. It takes some minutes on two processors; leave the
    machine alone meanwhile.

    Example: dsui bench head,step
    """
    check_format(table_format, out, as_json)
    names = parse_names("benchmark", what, NAMES)
    if "serving" in names:
        from dsui.serving.requirements import check_installed

        check_installed()
    from dsui.benchmarks.clock import machine_name, the_device
    from dsui.benchmarks.ratios import committed, measure
    from dsui.cli.progress import ProgressBars
    from dsui.cli.terminal import stderr_console

    with ProgressBars(stderr_console(quiet)) as bars:
        found = measure(names, not full, bars.update)
    known = committed(the_device())
    if as_json:
        ratios = [{"name": each.key, "here": each.here, "committed": each.committed} for each in found]
        print_json({"machine": machine_name(), "committed_machine": known.machine, "full": full, "ratios": ratios})
    if out is not None or not as_json:
        write_table(_table(found, known, machine_name(), full), table_format, out)


def _table(found: list[Ratio], known: Committed, machine: str, full: bool) -> Table:
    from dsui.report.tables import Column, Entry, Line, Table

    lines = tuple(
        Line(f"{each.key}, {'times as fast' if each.higher_is_better else 'times the time'}", cells)
        for each in found
        for cells in [(Entry(each.here), Entry(each.committed))]
    )
    size = "" if full else " This machine measured less of everything than the committed run; --full measures as much."
    note = f"Here: {machine}. Committed: {known.machine}.{size}"
    columns = (Column(("here",), decimals=2), Column(("committed",), decimals=2))
    return Table("Ratios of speed, dsui against the usual way", columns, lines, note, corner="what")
