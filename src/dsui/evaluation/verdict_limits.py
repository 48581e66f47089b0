"""The limits of a verdict: from where on an answer is no, and from where on yes.

They are choices, and each says why. docs/evaluation.md shows them to users.
"""

from __future__ import annotations

RIGHT = 0.5, 0.9
"""The share of right predictions among the accepted ones. Below a half it is more often wrong than right; from 0.9 on
at most one in ten is wrong. A share below that of guessing is "no" in any case."""
FOUND = 0.7, 0.8
"""The AUROC of errors by `uncertainty`. Hosmer and Lemeshow (2000) call 0.7 to 0.8 acceptable and more excellent; a
score without information has 0.5."""
FEW_ERRORS = 0.05
"""Where at most so many predictions are wrong, errors that cannot be found are no reason not to use a model."""
PASSED = 0.5, 0.2
"""The share of foreign images that is accepted where 95 % of the images like the training images are. A score without
information accepts 95 %; above a half most pass, and at 0.2 four of five are turned away."""
CLEARLY_FEWER = 0.5
"""Another score is named as the next step if at most this share of the foreign images that pass now would pass by it.
The best of many scores on the same images looks better than it is, and its threshold moves by chance."""
MISCALIBRATED = 0.15, 0.05
"""The ECE. At 0.05 a stated 95 % means 90 to 100 %; at 0.15 it may mean 80 %. Guo et al. (ICML 2017) found 0.04 to 0.17
in most of their networks, and 0.01 to 0.02 after scaling."""
FEWEST = 30
"""In-domain images, and foreign images of a kind, that a good answer takes: at 30 images the 95 % interval of a share
of 0.2 reaches from 0.1 to 0.37."""
FEWEST_FOR_THRESHOLD = 19
"""Held-out images that a threshold at coverage 0.95 takes (`dsui.runs.threshold`)."""
