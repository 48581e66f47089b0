"""The page of a published model, README.md: what it is, how to use it, what was measured, and where it ends.

Every figure is from the results rows of `dsui.publishing.evidence`. The head is YAML, by which the hub finds models. Of
several seeds, its `model-index` has the deviations as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dsui import __version__
from dsui.backbones.registry import OWN
from dsui.backbones.spec import is_code, is_spec
from dsui.evaluation.verdict_questions import Answer
from dsui.export.description import promise
from dsui.hub import LIBRARY
from dsui.publishing.evidence import Evidence
from dsui.report.table_forms import to_markdown
from dsui.runs.calibration import stored_calibration
from dsui.runs.saved_thresholds import saved_thresholds

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

TASK = "image-classification"
TAGS = ("dsui", "uncertainty", "out-of-distribution-detection", "selective-prediction", "model_hub_mixin")
TASK_NAMES = {
    "accuracy": "classification",
    "misclassification": "finding errors",
    "ood": "finding foreign images",
    "open-set": "finding unknown classes",
    "noise": "finding noise",
}
MOST_CLASSES = 20
"""That are named."""
PAPER = "https://doi.org/10.1109/TIP.2021.3123555"


def model_card(evidence: Evidence, name: str, licence: str | None = None) -> str:
    """README.md of a model that is called `name`, hf:USER/NAME or a folder."""
    sections = [
        _what(evidence, name),
        _use(evidence, name),
        _figures(evidence),
        _thresholds(evidence),
        _data(evidence),
        _limits(evidence),
        _made(evidence),
    ]
    return f"---\n{_head(evidence, name, licence)}\n---\n\n" + "\n".join(line for each in sections for line in each)


def _head(evidence: Evidence, name: str, licence: str | None) -> str:
    from huggingface_hub import ModelCardData

    results = list(_results(evidence))
    data = ModelCardData(
        license=licence,
        library_name=LIBRARY,
        pipeline_tag=TASK,
        tags=[*TAGS, evidence.run.config.method],
        metrics=sorted({each.metric_type for each in results}) or None,
        model_name=name.rpartition("/")[2] if results else None,
        eval_results=results or None,
    )
    return data.to_yaml().strip()


def _results(evidence: Evidence) -> Iterator[EvalResult]:
    from huggingface_hub import EvalResult

    data = evidence.run.config.data
    for figure, summary in evidence.summaries().items():
        task = TASK_NAMES.get(figure.task, figure.task)
        foreign = "" if figure.foreign in {None, figure.task} else f": {figure.foreign}"
        spread = None if summary.deviation is None else {"runs": summary.runs, "deviation": summary.deviation}
        yield EvalResult(
            task_type=TASK,
            task_name=task,
            dataset_type=data,
            dataset_name=data,
            dataset_config=f"{task}{foreign}",  # results of one configuration would be joined
            metric_type=figure.metric,
            metric_name=figure.metric if figure.metric == "accuracy" else f"{figure.metric} of {figure.score}",
            metric_value=summary.mean,
            metric_args=spread,
        )


def _what(evidence: Evidence, name: str) -> Iterator[str]:
    config = evidence.run.config
    yield f"# {name.rpartition('/')[2]}"
    yield ""
    yield (
        f"An image classifier of {len(evidence.run.classes):,} classes that says when not to trust it: "
        f"`{config.method}` on `{config.backbone}`, trained on `{config.data}`. "
        "For each image it gives a class, probabilities, how uncertain it is, and whether to accept it."
    )
    yield ""
    yield (
        "It was not evaluated, so it is unknown whether to trust it."
        if evidence.verdict is None
        else f"**{evidence.verdict.headline}**"
    )
    yield ""


def _use(evidence: Evidence, name: str) -> Iterator[str]:
    what = "features" if evidence.run.config.on_features and evidence.run.embedding is None else "photos"
    yield from ["## Use", "", "```bash", "pip install 'dsui[hub]'", f"dsui predict {name} {what}/", "```", ""]
    yield "```python"
    yield "from dsui import Predictor"
    yield ""
    yield f'predictor = Predictor.load("{name}")'
    images = "features" if what == "features" else '["a.jpg", "b.png"]'
    yield f"prediction = predictor.predict({images})  # .label, .probabilities, .uncertainty, .abnormal, .reason"
    yield "```"
    yield ""


def _figures(evidence: Evidence) -> Iterator[str]:
    if not evidence.rows:
        return
    seeds, part = evidence.seeds, "test images" if evidence.rows[0].of_test_images else "images that training held out"
    yield from ["## Figures", ""]
    if len(seeds) > 1:
        every = ", ".join(map(str, seeds))
        yield f"Of {part}: means ± deviations over runs of the seeds {every}. The weights here are of seed {seeds[0]}."
    else:
        yield f"Of {part}, by one run, seed {seeds[0]}: how much another seed changes is not known from it."
    yield ""
    for table in evidence.tables().tables:
        yield to_markdown(table)
    yield "Errors and foreign images are what is to be found: AUROC is the chance that one scores above a sound image."
    yield ""


def _thresholds(evidence: Evidence) -> Iterator[str]:
    chosen = saved_thresholds(evidence.run.path)
    yield from ["## Thresholds", ""]
    if chosen is None:
        yield "It keeps no threshold, so it accepts and rejects nothing until you choose one (`predictor.threshold`)."
    else:
        yield f"{chosen.sentence} {promise(chosen)}"
    yield ""


def _data(evidence: Evidence) -> Iterator[str]:
    config, classes = evidence.run.config, evidence.run.classes
    shown = ", ".join(classes[:MOST_CLASSES]) + (", ..." if len(classes) > MOST_CLASSES else "")
    size = f"{config.channels:,} features" if config.on_features else f"{config.size} x {config.size} pixels"
    held_out = len(stored_calibration(evidence.run).errors)
    yield from ["## Data", "", f"* Trained on `{config.data}`, {size}.", f"* Classes: {shown}."]
    if config.known is not None:
        yield f"* Only some classes of this set are known to it (`{config.known}`)."
    yield f"* Images held out of training, by which thresholds are chosen: {held_out or 'none'}."
    foreign = sorted({str(row.foreign) for row in evidence.rows if row.foreign is not None and row.task != "fgsm"})
    yield f"* Foreign images that it was tested against: {', '.join(foreign) or 'none'}."
    yield ""


def _limits(evidence: Evidence) -> Iterator[str]:
    yield from ["## Limits", ""]
    if evidence.verdict is not None:
        bad = [each for each in evidence.verdict.findings if each.answer is not Answer.yes]
        yield from (f"* {each.question} {str(each.answer).capitalize()}: {each.sentence}" for each in bad)
    yield "* What a threshold promises holds for images like the training images. Others are not covered."
    yield "* Foreign images of kinds that are not listed above may pass."
    backbone = evidence.run.config.backbone
    if backbone.startswith(OWN) or (is_spec(backbone) and is_code(backbone)):
        yield f"* Its network is made by code that is not here, `{backbone}`; it runs only where that code is."
    yield ""


def _made(evidence: Evidence) -> Iterator[str]:
    rows: Iterable[str] = dict.fromkeys(
        f"{row.device}, {', '.join(f'{key} {value}' for key, value in row.versions.items())}" for row in evidence.rows
    )
    recipe = evidence.run.config.recipe
    yield from ["## How it was made", ""]
    yield f"* Method `{evidence.run.config.method}`, recipe `{recipe.name}`; `config.yaml` has all settings."
    yield from (f"* Evaluated on {each}." for each in rows)
    yield f"* Written by dsui {__version__}. The layer and its loss: [DS-UI]({PAPER}), Xie et al., 2021."
    yield ""
