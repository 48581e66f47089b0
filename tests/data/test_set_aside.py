"""Images for test, by their names: about a fifth, the same ones whatever else lies there."""

from __future__ import annotations

import hashlib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from dsui.data.folder import for_test

ROOT = Path("/anywhere")
NAMES = st.lists(st.text("abcdefgh123", min_size=1, max_size=4), min_size=1, max_size=40, unique=True)


def files(names: list[str], root: Path = ROOT) -> list[Path]:
    return [root / "class" / f"{name}.png" for name in names]


def share(file: Path) -> float:
    """Where the hash of a name lies between 0 and 1."""
    return int(hashlib.sha256(f"class/{file.name}".encode()).hexdigest()[:16], 16) / 2**64


@given(NAMES)
def test_the_rule_is_the_hash_but_for_the_guarantee(names: list[str]) -> None:
    chosen, by_hash = for_test(files(names), ROOT), sorted(files(names), key=share)
    below = {file for file in by_hash if share(file) < 0.2}
    if len(names) == 1:
        assert not chosen
    elif not below:
        assert chosen == {by_hash[0]}
    elif len(below) == len(names):
        assert chosen == set(by_hash[:-1])
    else:
        assert chosen == below


@given(NAMES, st.text("xyz", min_size=1, max_size=4))
def test_a_file_more_moves_no_other_but_the_stand_in(names: list[str], added: str) -> None:
    before, after = for_test(files(names), ROOT), for_test(files([*names, added]), ROOT)
    moved = (before ^ after) - set(files([added]))
    assert len(moved) <= 1
    below = [file for file in files(names) if share(file) < 0.2]
    if 0 < len(below) < len(names):
        assert not moved


def test_where_the_folder_lies_and_how_it_is_sorted_change_nothing() -> None:
    names = [str(number) for number in range(30)]
    here, there = for_test(files(names), ROOT), for_test(files(names[::-1], Path("elsewhere")), Path("elsewhere"))
    assert {file.name for file in here} == {file.name for file in there}


def test_a_fifth_is_for_test() -> None:
    count = len(for_test(files([str(number) for number in range(10_000)]), ROOT))
    assert abs(count - 2000) < 160  # four deviations of sqrt(10000 / 5 * 4 / 5)
