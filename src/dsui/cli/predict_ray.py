"""`dsui predict --engine ray`: a folder of Parquet files, made by a cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from dsui.cli.errors import UsageError
from dsui.cli.prediction_rows import Counts
from dsui.errors import DsuiError, Stopped


def check_options(out: Path | None, as_json: bool, other_threshold: bool, own_function: str | None) -> Path:
    """The folder of --out; a UsageError where an option cannot be kept by a cluster."""
    if out is None or out.suffix.lower() in {".csv", ".jsonl"}:
        raise UsageError("--engine ray writes a folder of Parquet files; name one, as in --out answers.")
    if as_json:
        raise UsageError("--engine ray writes Parquet; leave out --json.")
    if other_threshold:
        raise UsageError(
            "--engine ray decides by the threshold that the run keeps; choose it with dsui threshold RUN --save, and "
            "leave out --coverage, --risk and scores."
        )
    if own_function is not None:
        raise UsageError(
            "--engine ray takes no --backbone, because other machines may not have its code; write the run with dsui "
            "export, and predict with the file."
        )
    return out


def predict_by_ray(model: Path, paths: list[Path], out: Path, batch: int | None, device: str, quiet: bool) -> None:
    """Answer for the files that `out` has no answers for yet."""
    from dsui.checks import check_installed
    from dsui.cli.progress import ProgressBars, print_note
    from dsui.cli.terminal import stderr_console
    from dsui.deploy.answers import opened
    from dsui.deploy.ray_rows import open_model, ray_rows
    from dsui.ray_cluster import connected_ray
    from dsui.runtime.predictor import BATCH

    check_installed("pyarrow", "answers in Parquet", "cluster")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # Ray calls a restart that may fail an error beforehand
    console, answering = stderr_console(quiet), open_model(model, device)
    for sentence in answering.told:
        console.print(sentence, soft_wrap=True)
    counts = Counts("image")
    with opened(out, answering.fingerprint, answering.decides) as folder:
        former = len(folder.answered)
        if former:
            print_note(console, f"{out} has answers for {former:,} files; only others are read.")
        with ExitStack() as leaving:
            notes: list[str] = []
            with _muted_stderr():
                ray = leaving.enter_context(connected_ray(notes.append))
            for sentence in notes:
                print_note(console, sentence)
            bars = leaving.enter_context(ProgressBars(console))
            rows = ray_rows(ray, model, answering.form, paths, folder.answered, batch or BATCH, device)
            try:
                with closing(folder.write(rows)) as written:
                    for each in written:
                        counts.add(each)
                        bars.update("predicting", counts.files, None)
            except KeyboardInterrupt as error:
                raise Stopped(
                    f"stopped after {counts.files:,} files; their rows are in {out}, and the same command continues."
                ) from error
    if counts.files == 0 and former == 0:
        raise DsuiError(f"there is no image in {', '.join(map(str, paths))}; name images or folders of them.")
    console.print(counts.summary(), soft_wrap=True)
    if counts.failed:
        raise DsuiError(f"{counts.failed:,} of {counts.files:,} files cannot be used; their rows say why.")


@contextmanager
def _muted_stderr() -> Iterator[None]:
    """Ray writes how it logs to the file descriptor itself; what fails comes as an exception."""
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)
