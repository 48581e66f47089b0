"""No more pixels than allowed are decoded at once, and everyone gets their turn."""

from __future__ import annotations

import threading
import time

from dsui.serving.pixel_budget import PixelBudget
from tests.support.server import PATIENCE


def test_threads_together_never_take_more_and_all_come_through() -> None:
    budget, lock = PixelBudget(100), threading.Lock()
    taken, most, done = 0, 0, 0

    def decode(pixels: int) -> None:
        nonlocal taken, most, done
        with budget.taking(pixels):
            with lock:
                taken += pixels
                most = max(most, taken)
            time.sleep(0.001)
            with lock:
                taken -= pixels
                done += 1

    threads = [threading.Thread(target=decode, args=(pixels,)) for pixels in (100, 60, 40, 1, 99) * 8]
    for each in threads:
        each.start()
    for each in threads:
        each.join(PATIENCE)
    assert done == len(threads)
    assert 60 < most <= 100, "as many as fit, and no more"
