"""A bet against an urn: how much more often do new images lie below a calibration value than chance allows?

Take n calibration images, and the one of rank k among their scores. If new images are like them (all scores together
are exchangeable, and no two are equal), then of t new images s lie below it, and the next one does with the chance

    P = (k + s) / (n + 1 + t)

That is Polya's urn: it holds exactly, whatever the distribution of the scores is, and it knows that the calibration
images may have been lucky (given them the true rate is a draw from Beta(k, n + 1 - k)). With another chance q

    q / P  where the image lies below,  (1 - q) / (1 - P)  where it does not

is a factor with the mean 1. Wealth multiplied by it stays at 1 on average, and grows only if images are no longer alike
(a test martingale: Ville 1939; for ranks Vovk et al., 2003). The wealth is spread over chances q on both sides, over
several ranks k, whose urns agree about what is known, and over every image from which on the change may have come:

    M_t = sum_{u <= t} w_u prod_{i = u..t} factor_i  +  sum_{u > t} w_u,    sum_{u > t} w_u = 1 / ln(t + e)

It starts at 1 and keeps the mean 1, so with a chance of at least 1 - a it never reaches 1 / a, however long it goes on.
A change after t images must overcome ln(1 / w_t), about ln t + 2 ln ln t.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SHIFTS = np.array([0.2, 0.28, 0.4, 0.57, 0.8, 1.13, 1.6, 2.26, 3.2, 4.5])
"""Of the log-odds of q from those of k / (n + 1), in both directions: from 50 to 45 %, from 99.9 to 92 %."""


def log_start(step: int) -> float:
    """ln w of the bets that start with image `step` + 1."""
    return math.log(1 / math.log(step + math.e) - 1 / math.log(step + 1 + math.e))


def log_rest(step: int) -> float:
    """ln of the wealth that starts after image `step` + 1."""
    return -math.log(math.log(step + 1 + math.e))


class UrnMartingale:
    """Wealth of bets on images below the calibration values of `ranks`, each from 1 to `images`.

    Without calibration images, `rates` are the true chances in place of ranks. `shape` is that of independent streams
    which are watched side by side; () for one.
    """

    def __init__(
        self,
        ranks: Sequence[int] | None = None,
        images: int | None = None,
        *,
        rates: Sequence[float] | None = None,
        shape: tuple[int, ...] = (),
    ) -> None:
        if images is not None:
            if not ranks or not all(1 <= rank <= images for rank in ranks):
                raise ValueError(f"ranks must lie between 1 and the {images} calibration images, got {ranks}.")
            self._below, self._all = np.array(ranks, dtype=np.float64), images + 1.0
        elif rates and all(0 < rate < 1 for rate in rates):
            self._below, self._all = np.array(rates, dtype=np.float64), 1.0
        else:
            raise ValueError("an urn needs ranks among calibration images, or rates between 0 and 1.")
        self._learns = images is not None
        centre = self._below / self._all
        odds = np.log(centre / (1 - centre))[:, None] + np.concatenate([-SHIFTS[::-1], SHIFTS])
        self._log_below, self._log_above = -np.logaddexp(0, -odds), -np.logaddexp(0, odds)  # ln q and ln(1 - q)
        self._log_bets = np.full((*shape, *odds.shape), -np.inf)  # of all starts so far, without the common 1 / bets
        self._log_count = math.log(odds.size)
        self._seen_below = np.zeros((*shape, len(centre)))
        self.observations = 0

    def update(self, below: NDArray[np.bool_]) -> NDArray[np.float64]:
        """[*shape] the log of the wealth, after one image of each stream: [*shape, ranks] whether it lies below."""
        step = self.observations
        chance = self._below / self._all
        if self._learns:
            chance = (self._below + self._seen_below) / (self._all + step)
        factor = np.where(
            below[..., None],
            self._log_below - np.log(chance)[..., None],
            self._log_above - np.log1p(-chance)[..., None],
        )
        self._log_bets = np.logaddexp(self._log_bets, log_start(step)) + factor
        self._seen_below += below
        self.observations = step + 1
        largest = self._log_bets.max((-2, -1))
        bets = largest + np.log(np.exp(self._log_bets - largest[..., None, None]).sum((-2, -1))) - self._log_count
        wealth: NDArray[np.float64] = np.logaddexp(bets, log_rest(step))
        return wealth
