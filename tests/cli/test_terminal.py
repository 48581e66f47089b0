"""What reaches a terminal: no command from a name, and characters that the console has."""

from __future__ import annotations

import io
import re
import sys

import pytest
from rich.table import Table

from dsui.cli import terminal
from dsui.cli.errors import print_error
from tests.support.fences import ROOT

ESCAPES = "\x1b[31mred\x1b]0;title\x07 [bold]x[/b] :smile: \x9b2J \u202eabc caf\udce9"
SHOWN = "�[31mred�]0;title� [bold]x[/b] :smile: �2J �abc caf�"


class Console(io.TextIOWrapper):
    """A stream with a memory, which says that it is a terminal."""

    def __init__(self, encoding: str = "utf-8", terminal: bool = True) -> None:
        super().__init__(io.BytesIO(), encoding=encoding, newline="")
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    def shown(self) -> bytes:
        self.flush()
        return self.buffer.getvalue()  # type: ignore[attr-defined, no-any-return]


def replace(monkeypatch: pytest.MonkeyPatch, stream: Console) -> Console:
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "dumb")  # rich sends no codes of its own
    return stream


def test_lines_errors_tables_and_results_show_control_characters_and_never_send_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = replace(monkeypatch, Console())
    table = Table(title=ESCAPES, width=80)
    table.add_column(ESCAPES)
    table.add_row(ESCAPES)
    terminal.print_line(ESCAPES)
    terminal.write(ESCAPES)
    print_error(ESCAPES)
    terminal.stdout_console().print(table)
    terminal.stderr_console(quiet=False).print(ESCAPES, soft_wrap=True)
    shown = stream.shown().decode()
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown)
    # rich leaves the bell out; a table has its title, heading and cell
    assert shown.count(SHOWN) + shown.count(SHOWN.replace("title�", "title")) == 7


def test_results_in_a_pipe_keep_every_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = replace(monkeypatch, Console(terminal=False))
    terminal.write(ESCAPES)
    assert stream.shown() == ESCAPES.encode(errors="surrogateescape")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_a_console_without_arrows_gets_plain_characters(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    stream = replace(monkeypatch, Console(encoding))
    terminal.print_line("a → b, 95.1 ± 0.2 ↑ … café 名")
    shown = stream.shown().decode(encoding)
    expected = {"ascii": "a -> b, 95.1 +- 0.2 ^ ... cafe ?", "latin-1": "a -> b, 95.1 ± 0.2 ^ ... café ?"}
    assert shown == expected.get(encoding, "a -> b, 95.1 ± 0.2 ^ … café ?") + "\n"


def test_all_that_is_printed_passes_the_one_writer() -> None:
    other = re.compile(r"typer\.echo|click\.echo|^\s*print\(|sys\.(stdout|stderr)|\bConsole\(")
    for path in sorted((ROOT / "src" / "dsui" / "cli").glob("*.py")):
        found = [line for line in path.read_text(encoding="utf-8").splitlines() if other.search(line)]
        if path.name != "terminal.py":
            assert [line for line in found if "is None" not in line] == [], path
