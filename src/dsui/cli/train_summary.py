"""What `dsui train` says of a finished run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsui.cli.terminal import print_line

if TYPE_CHECKING:
    from pathlib import Path

    from dsui.runs.calibration import Calibration
    from dsui.runs.config import RunConfig


def print_sentences(out: Path, has_test: bool) -> None:
    """How well the run does, and what its images say against how it was trained."""
    from dsui.runs import turns

    found = _calibration(out)
    if (sentence := turns.advice(found.turns)) is not None:
        print_line(sentence, err=True)
    print_line(_closing_sentence(out, _held_out_accuracy(found), has_test))


def _closing_sentence(out: Path, held_out: dict[str, float] | None, has_test: bool) -> str:
    """How well the finished run does, where it is, and what to do next."""
    accuracy = f"{held_out['accuracy']:.1%} of {held_out['images']:,} held-out images are right; " if held_out else ""
    command = (
        f"evaluate {out}" if has_test else f"evaluate {out} --on held-out" if held_out else f"predict {out} IMAGES"
    )
    return f"Trained; {accuracy}the weights are in {out / 'model.safetensors'}. Next: dsui {command}"


def facts(config: RunConfig, out: Path) -> dict[str, object]:
    """A finished run, for --json; the figures are those of its last epoch, or of the best one where it kept that."""
    from dsui.runs.folder import LOG, WEIGHTS
    from dsui.runs.log import read_log
    from dsui.training.reporter import BEST_EPOCH

    rows = read_log(out / LOG).epochs
    last = rows[-1] if rows else {}  # the user may have deleted the log
    best = last.get(BEST_EPOCH)
    kept = next((row for row in rows if row["epoch"] == best), last)
    found = _calibration(out)
    figures = {name: value for name, value in kept.items() if name not in {"epoch", "step", "seconds", BEST_EPOCH}}
    return {
        "run": out,
        "weights": out / WEIGHTS,
        "data": config.data,
        "method": config.method,
        "backbone": config.backbone,
        "recipe": config.recipe.name,
        "seed": config.seed,
        "epochs": config.recipe.epochs,
        "best_epoch": best,
        "seconds": round(sum(row["seconds"] for row in rows), 3),
        "figures": figures,
        "held_out": _held_out_accuracy(found),
        "turns_told_apart": found.turns,
    }


def _calibration(out: Path) -> Calibration:
    """What a finished run measured on the images that it held out."""
    from dsui.runs.calibration import CALIBRATION, Calibration
    from dsui.runs.folder import WEIGHTS
    from dsui.runs.weights import read_metadata

    return Calibration.from_text(read_metadata(out / WEIGHTS)[CALIBRATION])


def _held_out_accuracy(found: Calibration) -> dict[str, float] | None:
    """The number of images that a run held out and its accuracy on them; None if it held none out."""
    errors = found.errors
    return {"images": len(errors), "accuracy": 1 - errors.double().mean().item()} if len(errors) else None
