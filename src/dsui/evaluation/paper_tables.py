"""The numbers of the paper's Tables 1 to 4 (Xie et al., DS-UI) as printed; none of them was computed here.

`paper_tables.jsonl` holds one row for each method, data set, backbone and score, with fractions where the paper prints
per cent. What the paper leaves open is None: the backbone of Tables 3 and 4, a deviation of G-OpenMax on Tiny ImageNet.
"Five runs" is the paper's word for all methods. It took three rows of Table 3 from elsewhere (`quoted_from`) and marked
them too; with five runs the t-test gives the printed marks, save the one without a deviation, which no test can give.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from dsui.checks import check_choice

TABLES = ("table1", "table2", "table3", "table4")


@dataclass(frozen=True)
class PaperRow:
    """`metrics`, `deviation` and `mark` (of `statistics`, against DS-UI; "N/A" for DS-UI) are by metric.

    `settings`: the part of the ablation (Table 1) that is on: components, push, regularizer ("reg", "kl" or None).
    `split`: known and unknown classes of an open-set test. `source` is always "published".
    """

    table: str
    method: str
    data: str
    backbone: str | None
    task: str
    foreign: str | None
    split: str | None
    score: str | None
    metrics: Mapping[str, float]
    deviation: Mapping[str, float | None]
    mark: Mapping[str, str]
    runs: int
    source: str
    quoted_from: str | None
    settings: Mapping[str, object] | None


def paper_rows(table: str | None = None) -> tuple[PaperRow, ...]:
    """All rows in the order of print, or those of one table: "table1" to "table4"."""
    if table is None:
        return _rows()
    check_choice("table", table, TABLES)
    return tuple(row for row in _rows() if row.table == table)


@cache
def _rows() -> tuple[PaperRow, ...]:
    lines = files("dsui.evaluation").joinpath("paper_tables.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(PaperRow(**json.loads(line)) for line in lines)
