"""The draws of the transfer study are those that were fixed before any of them was scored."""

from __future__ import annotations

import hashlib

from studies.transfer_draws import KNOWN, PHOTOGRAPHS, draws_for_selection, draws_for_test, shares

FIXED = "2fddd604e222b5190424a09f5560ce56d7f38e086de79caa9044ca071acc31b7"
"""SHA-256 of everything that is drawn, written down before the network was trained."""


def test_no_class_is_of_two_shares() -> None:
    trained, selection, test = shares()
    assert [len(share) for share in shares()] == [120, 32, 48]
    assert sorted([*trained, *selection, *test]) == list(range(200))


def test_a_draw_takes_classes_of_its_share_alone_and_no_class_twice() -> None:
    _, selection, test = shares()
    for draws, share in ((draws_for_selection(), selection), (draws_for_test(), test)):
        for draw in draws:
            classes = [*draw.known, *draw.foreign]
            assert len(set(classes)) == 2 * KNOWN
            assert set(classes) <= set(share)


def test_all_draws_are_those_that_were_fixed() -> None:
    drawn = [
        (draw, [draw.photographs(label, 500, PHOTOGRAPHS) for label in draw.known])
        for draw in (*draws_for_selection(), *draws_for_test())
    ]
    assert hashlib.sha256(repr((shares(), drawn)).encode()).hexdigest() == FIXED
