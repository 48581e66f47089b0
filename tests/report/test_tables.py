from __future__ import annotations

import csv
import io
import json
import math
import re

import pytest
from rich.console import Console

from dsui.report.table_forms import to_csv, to_json, to_latex, to_markdown, to_terminal
from dsui.report.tables import Column, Entry, Line, Table

UP = Column(("ood", "AUROC"), True, "%", 100, 2)
DOWN = Column(("errors", "AURC"), False, "1/1000", 1000, 1)
PLAIN = Column(("errors", "images"), None, "", 1, 0)


def one_column(column: Column, *means: float | None) -> Table:
    return Table("t", (column,), tuple(Line(f"m{i}", (Entry(mean),)) for i, mean in enumerate(means)))


TABLE = Table(
    "Open-set & noise: 100% of cifar_10",
    (UP, DOWN, PLAIN),
    (
        Line("msp", (Entry(0.912345, 0.0015, 5, 0.001, "✓"), Entry(0.0123, 0.1, 5), Entry(400.0))),
        Line("quoted|one", (Entry(0.58, None, 5), Entry(), Entry(text="none")), quoted=True),
        Line("ours_2", (Entry(0.9512, 0.1057, 3), Entry(0.0098, 0.0001, 3, 0.7, "\u00d7"), Entry(7.0))),
        Line("last", (Entry(1.0, 0.02, 5, 0.3, "\u00d7"), Entry(math.nan), Entry(1234.0))),
    ),
    "Mean ± deviation over 3 to 5 runs, p < 0.05.",
)
ORDER = ["msp", "ours_2", "last", "quoted|one"]


def terminal(table: Table, width: int = 200) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width).print(to_terminal(table, width))
    return stream.getvalue()


def test_best_is_the_largest_or_the_smallest_by_the_direction_of_the_column() -> None:
    assert one_column(UP, 0.1, 0.3, 0.2).places(0) == [None, "best", "second"]
    assert one_column(DOWN, 0.1, 0.3, 0.2).places(0) == ["best", None, "second"]
    assert one_column(PLAIN, 0.1, 0.3, 0.2).places(0) == [None, None, None]


def test_equal_digits_share_a_place_and_the_next_figure_is_second() -> None:
    assert one_column(UP, 0.90001, 0.90002, 0.8, 0.8, 0.7).places(0) == ["best", "best", "second", "second", None]
    assert one_column(UP, 0.90001, 0.90002).places(0) == ["best", "best"]
    assert one_column(DOWN, 0.5, 0.00004, -0.00004).places(0) == ["second", "best", "best"]


def test_missing_figures_have_no_place_and_a_lone_figure_is_not_best() -> None:
    assert one_column(UP, None, 0.5, math.nan, 0.4).places(0) == [None, "best", None, "second"]
    assert one_column(UP, None, 0.5).places(0) == [None, None]


def test_terminal_puts_decimal_points_deviations_and_marks_below_each_other() -> None:
    lines = terminal(TABLE).splitlines()
    rows = {label: next(line for line in lines if line.startswith(label)) for label in ORDER}
    starts = [lines[3].index(text) for text in ("AUROC", "AURC", "images")]
    first = [row[len("quoted|one †") : starts[1]] for row in rows.values()]
    assert {text.index(".") for text in first} == {first[0].index(".")}
    assert {text.index("±") for text in first if "±" in text} == {first[0].index("±")}
    assert {text.index(mark) for text in first for mark in "✓\u00d7" if mark in text} == {first[0].index("✓")}
    assert [" ".join(row.split()) for row in rows.values()] == [
        "msp 91.23 ± 0.15 ✓ 12.3 ± 100.0 400",
        "ours_2 95.12 ± 10.57 9.8 ± 0.1 \u00d7 7",
        "last 100.00 ± 2.00 \u00d7 - 1234",
        "quoted|one † 58.00 - none",
    ]


def test_terminal_emphasises_figures_alone_and_sets_quoted_lines_apart() -> None:
    stream = io.StringIO()
    Console(file=stream, width=200, force_terminal=True, color_system="standard").print(to_terminal(TABLE))
    styled = stream.getvalue()
    assert re.findall(r"\x1b\[1m(\d.*?)\x1b\[0m", styled) == ["9.8 ±   0.1", "100.00 ±  2.00"]
    assert re.findall(r"\x1b\[4m(.*?)\x1b\[0m", styled) == ["12.3 ± 100.0", "95.12 ± 10.57"]
    plain = terminal(TABLE).splitlines()
    quoted = next(i for i, line in enumerate(plain) if line.startswith("quoted"))
    assert plain[quoted - 1].strip() == ""


def test_a_caption_speaks_of_bold_only_where_something_can_be_bold() -> None:
    stream = io.StringIO()
    Console(file=stream, width=200).print(to_terminal(TABLE, 200, styled=False))
    assert "higher is better" in stream.getvalue()
    assert "bold" not in stream.getvalue()
    assert "Best of a column bold" in terminal(TABLE)


def test_terminal_continues_a_wide_table_below_and_loses_no_digit() -> None:
    wide = Table("t", (UP,) * 9, (Line("a-method", (Entry(0.123456, 0.0123, mark="✓"),) * 9),))
    for width in (40, 60, 80, 200):
        shown = terminal(wide, width)
        assert max(map(len, shown.splitlines())) <= width
        assert shown.count("12.35 ± 1.23 ✓") == 9
        assert shown.count("AUROC % ↑") == 9
    narrow = terminal(wide, 12).split()  # folded rather than cut
    assert narrow.count("12.35") == narrow.count("1.23") == narrow.count("✓") == 9


def test_terminal_sets_a_table_tight_before_it_breaks_it() -> None:
    table = Table("t", (UP,) * 4, tuple(Line(f"m{i}", (Entry(0.123456, 0.0123, mark="✓"),) * 4) for i in range(2)))
    roomy, tight = (len("method") + 4 * len(column) for column in ("   12.35 ± 1.23 ✓", "  12.35±1.23 ✓"))
    assert terminal(table, roomy).count("12.35 ± 1.23 ✓") == 8
    for width in (roomy - 1, tight):
        shown = terminal(table, width)
        assert shown.count("12.35±1.23 ✓") == 8
        assert shown.count("method") == 1
        assert len(next(line for line in shown.splitlines() if line.startswith("m0"))) == tight
    assert terminal(table, tight - 1).count("method") == 2


def test_markup_in_names_is_text() -> None:
    table = Table("[bold]t", (Column(("[red]x",)),), (Line("[/]y", (Entry(text="[z]"),)),))
    shown = terminal(table)
    assert all(text in shown for text in ("[bold]t", "[red]x", "[/]y", "[z]"))


def test_markdown_reads_back_as_the_table() -> None:
    text = to_markdown(TABLE)
    title, body, caption = text.strip().split("\n\n")
    assert title == "**Open-set & noise: 100% of cifar\\_10**"
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in body.splitlines()]
    assert rows[0] == ["method", "ood AUROC % ↑", "errors AURC 1/1000 ↓", "errors images"]
    assert [set(cell) for cell in rows[1]] == [{"-"}, {"-", ":"}, {"-", ":"}, {"-", ":"}]
    assert rows[2:] == [
        ["msp", "91.23 ±  0.15 ✓", "<ins>12.3 ± 100.0</ins>", "400"],
        ["ours\\_2", "<ins>95.12 ± 10.57</ins>", "**9.8 ±   0.1** \u00d7", "7"],
        ["last", "**100.00 ±  2.00** \u00d7", "-", "1234"],
        ["quoted\\|one †", "58.00", "-", "none"],
    ]
    assert len({len(line) for line in body.splitlines()}) == 1  # the source is aligned too
    assert "p \\< 0.05" in caption


def test_latex_is_balanced_escaped_and_merges_equal_headers() -> None:
    table = Table(
        r"50% of {a} & b_c #1 ~^\ <x|y> $",
        (UP, UP, DOWN),
        (Line(r"m&_%#${}~^\|", (Entry(0.5, 0.1, 5, 0.1, "✓"), Entry(0.4), Entry(text="a & b"))), *TABLE.lines[1:2]),
        "note: ε → ↓",
    )
    text = to_latex(table)
    assert text.count(r"\begin{") == text.count(r"\end{") == 2
    bare = re.sub(r"\\[&%$#_{}\\]", "", text)  # without escaped characters and row ends
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    assert not re.search(r"[%#~]|[^\x00-\x7f]", bare)
    outside = re.sub(r"\$[^$]*\$", "", bare)
    assert not re.search(r"[<>|^_]", outside)
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert rows[0] == r" & \multicolumn{2}{c}{ood} & \multicolumn{1}{c}{errors} \\"
    for row in rows[1:]:
        assert len(re.findall(r"(?<!\\)&", row)) == 3
    assert r"\underline{50.00 $\pm$ 10.00} $\checkmark$" in text
    assert r"\textbf{58.00} &" in text
    assert r"\begin{tabular}{lrrr}" in text
    assert text.count(r"\midrule") == 2  # the quoted line stands apart


def test_csv_holds_unrounded_fractions_and_empty_fields_for_none() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(TABLE))))
    assert [row["method"] for row in rows] == ORDER
    assert [row["quoted"] for row in rows] == ["False", "False", "False", "True"]
    assert float(rows[0]["ood AUROC"]) == 0.912345
    assert [rows[0][f"ood AUROC {part}"] for part in ("deviation", "runs", "p", "mark")] == [
        "0.0015",
        "5",
        "0.001",
        "✓",
    ]
    assert rows[2]["errors AURC"] == rows[3]["ood AUROC deviation"] == ""


def test_json_holds_the_table_and_every_place() -> None:
    content = json.loads(to_json(TABLE))
    assert content["note"] == TABLE.note
    assert [column["higher_is_better"] for column in content["columns"]] == [True, False, None]
    assert [line["cells"][0]["place"] for line in content["lines"]] == [None, None, "second", "best"]
    assert content["lines"][0]["cells"][0]["mean"] == 0.912345
    assert content["lines"][3]["cells"][1]["mean"] is None


def test_caption_explains_what_the_table_uses_and_nothing_else() -> None:
    everything = "↑ higher is better. ↓ lower is better. Best of a column bold, second best underlined. † quoted"
    assert everything in TABLE.caption
    assert TABLE.caption.startswith(TABLE.note)
    assert one_column(PLAIN, 1.0, 2.0).caption == ""
    assert one_column(DOWN, 1.0).caption == "↓ lower is better."


def test_quoted_lines_may_stand_beside_the_own_ones_with_a_best_of_their_own() -> None:
    lines = [
        Line(name, (Entry(mean),), name.endswith("q"))
        for name, mean in (("a", 0.7), ("aq", 0.9), ("b", 0.8), ("bq", 0.6))
    ]
    apart = Table("t", (UP,), tuple(lines))
    beside = Table("t", (UP,), tuple(lines), beside=True)
    assert apart.places(0) == [None, "best", "second", None]
    assert beside.places(0) == ["second", "best", "best", "second"]
    first_words = [re.findall(r"^\| (\w+)", line) for line in to_markdown(beside).splitlines()]
    assert [word for words in first_words for word in words][1:] == ["a", "aq", "b", "bq"]
    assert "**90.00**" in to_markdown(beside)
    assert to_csv(apart).splitlines()[2].startswith("b,False")
    assert to_csv(beside).splitlines()[2].startswith("aq,True")


def test_ragged_tables_are_refused() -> None:
    with pytest.raises(ValueError, match="every line needs 1 cells; m has another number"):
        Table("t", (UP,), (Line("m", ()),))
    with pytest.raises(ValueError, match="headers of the same number of lines"):
        Table("t", (UP, Column(("x",))), ())


def test_table_without_lines_or_columns_is_still_a_table() -> None:
    for table in (Table("t", (UP,), ()), Table("t", (), (Line("m", ()),))):
        for form in (to_markdown, to_latex, to_csv, to_json):
            assert form(table)
        assert terminal(table).startswith("t\n")


GROUPED = Table(
    "t",
    (UP, DOWN),
    tuple(
        Line(label, (Entry(auroc, 0.01), Entry(auroc / 10)), group=group)
        for group, label, auroc in (
            ("svhn", "a", 0.9),
            ("svhn", "b", 0.8),
            ("photos", "a", 0.99),
            ("photos", "b", 0.98),
        )
    ),
)


def test_lines_compete_within_their_group() -> None:
    assert GROUPED.places(0) == ["best", "second", "best", "second"]
    assert GROUPED.places(1) == ["second", "best", "second", "best"]
    assert "Best of each group bold" in GROUPED.caption


@pytest.mark.parametrize("width", [200, 22])
def test_a_group_stands_below_its_name_in_the_columns_of_the_others(width: int) -> None:
    lines = [line.rstrip() for line in terminal(GROUPED, width).splitlines()]
    for begin in [place for place, line in enumerate(lines) if line.startswith("method")]:
        assert (lines[begin + 2], lines[begin + 5]) == ("svhn", "photos")
        rows = [lines[begin + place] for place in (3, 4, 6, 7)]
        assert [row[:3] for row in rows] == ["  a", "  b"] * 2
        assert len({row.index(".") for row in rows}) == 1, "decimal points below each other"
    assert sum(line.startswith("svhn") for line in lines) == (1 if width == 200 else 2)


def test_a_group_of_one_line_with_its_name_has_no_heading() -> None:
    alone = [Line(name, (Entry(mean),), group=name) for name, mean in (("svhn", 0.9), ("photos", 0.8))]
    table = Table("t", (UP,), tuple(alone))
    assert table.places(0) == [None, None], "different images do not compete"
    assert [line.split()[0] for line in terminal(table).splitlines()[5:7]] == ["svhn", "photos"]


def test_other_forms_name_the_group_in_the_line() -> None:
    assert [row["method"] for row in csv.DictReader(io.StringIO(to_csv(GROUPED)))] == [
        *("svhn, a", "svhn, b", "photos, a", "photos, b")
    ]
    for form in (to_markdown, to_latex):
        assert "photos, b" in form(GROUPED)
    assert [line["group"] for line in json.loads(to_json(GROUPED))["lines"]] == ["svhn", "svhn", "photos", "photos"]
