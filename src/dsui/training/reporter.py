"""What a run tells of its progress, and to whom."""

from __future__ import annotations

from typing import Protocol

IMAGES_PER_SECOND = "images_per_second"
ACCURACY = "accuracy"
"""Key in a log row and of a reporter's figures: on the training images, as they were augmented."""
WARNING = "warning"
"""Key in a log row: what the method said of its training in this epoch."""
HELD_OUT_ACCURACY, HELD_OUT_LOSS = "held_out_accuracy", "held_out_loss"
"""Keys in the log rows of those epochs in which they were measured."""
BEST_EPOCH = "best_epoch"
"""Key in the log rows of a run that may stop early: whose weights are kept so far, counted from 0."""


class Reporter(Protocol):
    """Shows a run's progress."""

    def preparing(self, what: str, done: int, total: int | None) -> None:
        """Called before the first step, while the features of images are computed; a `dsui.progress.Progress`."""
        ...

    def steps(self, done: int, total: int, figures: dict[str, float]) -> None:
        """Called about once a second; the figures are means over the epoch so far."""
        ...

    def epoch(self, row: dict[str, object]) -> None:
        """Called after each epoch with what was logged; under `WARNING` there may be a sentence for the user."""
        ...

    def note(self, sentence: str) -> None:
        """Called with what the user should know."""
        ...

    def stopping(self) -> None:
        """Called at once when the user asks to stop; the present step is still done, and the run saved."""
        ...


class SilentReporter:
    """Shows nothing."""

    def preparing(self, what: str, done: int, total: int | None) -> None: ...

    def steps(self, done: int, total: int, figures: dict[str, float]) -> None: ...

    def epoch(self, row: dict[str, object]) -> None: ...

    def note(self, sentence: str) -> None: ...

    def stopping(self) -> None: ...
