"""What was measured of a run that is published, and of runs that differ from it in the seed alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dsui.errors import DsuiError
from dsui.evaluation.results import ResultRow, read
from dsui.evaluation.statistics import Summary
from dsui.evaluation.verdict import Verdict, judge
from dsui.evaluation.verdict_facts import SCORE, facts_of_rows
from dsui.report.columns import Figure
from dsui.report.comparison import available
from dsui.report.comparison_lines import latest_rows, own_summaries, with_prediction_stream
from dsui.report.comparison_questions import STREAM, usual_figures
from dsui.report.comparison_tables import QuestionTables, compare_by_question
from dsui.runs.folder import RESULTS
from dsui.runs.model import RunFacts, run_facts, short_fingerprint

SEED = "seed"


@dataclass(frozen=True)
class Evidence:
    """`run` is the published one and `rows` are of all `runs`, of their present weights: of test images, or of held-out
    ones where there are no others. `verdict` is that of the published run; None where nothing was evaluated."""

    run: RunFacts
    runs: tuple[RunFacts, ...]
    rows: tuple[ResultRow, ...]
    verdict: Verdict | None

    @property
    def seeds(self) -> list[int]:
        return [each.config.seed for each in self.runs]

    def figures(self) -> list[Figure]:
        """By the recommended score, as a reader sees them first."""
        return usual_figures(available(self.rows), self.rows)

    def tables(self) -> QuestionTables:
        """A table for each question; means and deviations where there are several runs."""
        return compare_by_question(self.rows, self.figures())

    def summaries(self) -> dict[Figure, Summary]:
        """Accuracy, and AUROC of the recommended score, over the runs."""
        wanted = {
            each
            for each in self.figures()
            if (each.metric, each.score) in {("accuracy", STREAM), ("auroc", SCORE)} and each.task != "fgsm"
        }
        (found,) = own_summaries(self.rows, wanted).values() if wanted else ({},)
        return found


def evidence_of(run: Path, others: Sequence[Path] = ()) -> Evidence:
    """The rows in the folders of the runs; a DsuiError where `others` differ in more than the seed."""
    first, *more = (run_facts(each) for each in (run, *others))
    seen = {first.fingerprint()}
    for each in more:
        if _without_seed(each) != _without_seed(first) or each.classes != first.classes:
            raise DsuiError(
                f"{each.path} and {first.path} were trained with other settings; name runs that differ in the seed."
            )
        if each.fingerprint() in seen:
            raise DsuiError(f"{each.path} holds the weights of another run that is named; leave it out.")
        seen.add(each.fingerprint())
    by_run = [_rows(each) for each in (first, *more)]
    of_test = any(row.of_test_images for rows in by_run for row in rows)
    rows = tuple(row for rows in by_run for row in rows if row.of_test_images == of_test)
    facts = facts_of_rows(first, by_run[0])
    return Evidence(first, (first, *more), rows, None if facts is None else judge(facts))


def _without_seed(facts: RunFacts) -> dict[str, object]:
    return {key: value for key, value in facts.config.mapping().items() if key != SEED}


def _rows(facts: RunFacts) -> list[ResultRow]:
    """Of its own method and its present weights."""
    path = facts.path / RESULTS
    if not path.exists():
        return []
    present = short_fingerprint(facts.fingerprint())
    own = [row for row in read([path])[0] if row.method == facts.config.method and row.weights in {None, present}]
    return latest_rows(with_prediction_stream(replace(row, weights=present)) for row in own)
