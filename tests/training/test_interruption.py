"""Signals as a wish to stop."""

from __future__ import annotations

import os
import signal

import pytest

from dsui.training.interruption import Interruption


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_a_request_to_end_and_a_closed_terminal_are_wishes(number: signal.Signals) -> None:
    heard: list[int] = []
    former = signal.signal(number, lambda *_: heard.append(1))
    try:
        with Interruption() as interruption:
            os.kill(os.getpid(), number)
            assert interruption.requested
        assert not heard
    finally:
        signal.signal(number, former)


def test_the_first_signal_is_a_wish_and_the_second_acts_as_usual() -> None:
    with Interruption() as interruption:
        os.kill(os.getpid(), signal.SIGINT)
        assert interruption.requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_an_answer_that_nobody_can_hear_does_not_hinder_the_end() -> None:
    def closed() -> None:
        raise OSError(5, "Input/output error")

    with Interruption(closed) as interruption:
        os.kill(os.getpid(), signal.SIGHUP)
        assert interruption.requested


def test_a_signal_that_the_process_was_told_to_ignore_is_ignored() -> None:
    former = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interruption() as interruption:
            os.kill(os.getpid(), signal.SIGINT)
            assert not interruption.requested
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, former)
