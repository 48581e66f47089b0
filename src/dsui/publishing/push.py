"""A run as a model of the Hugging Face hub, by the conventions of its mixins: safetensors, config.json, README.md.

`stage` fills a folder with what is published; `push` uploads one. Checkpoints, logs and cached outputs stay at home.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from dsui import __version__
from dsui.errors import DsuiError
from dsui.hub import (
    CARD,
    CONFIG,
    FILES,
    FORMAT,
    LIBRARY,
    RUN_FILES,
    HubName,
    check_hub_installed,
    check_of_dsui,
    hub_errors,
    hub_progress,
)
from dsui.publishing.card import model_card
from dsui.publishing.evidence import Evidence, evidence_of


def stage(run: Path, folder: Path, name: str, others: Sequence[Path] = (), licence: str | None = None) -> Evidence:
    """Write what would be published into an empty folder; `name` is how the card calls the model."""
    check_hub_installed()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DsuiError(f"{folder} holds other files; choose a new --out.")
    evidence = evidence_of(run, others)
    card = model_card(evidence, name, licence)
    config = json.dumps(_config(evidence), indent=2, allow_nan=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for each in RUN_FILES:
            if (run / each).exists():
                shutil.copyfile(run / each, folder / each)
        (folder / CONFIG).write_text(f"{config}\n", encoding="utf-8")
        (folder / CARD).write_text(card, encoding="utf-8")
    except OSError as error:
        raise DsuiError(f"{folder} cannot be written ({error.strerror}); choose another --out.") from error
    return evidence


def push(folder: Path, name: HubName, private: bool = False, quiet: bool = False) -> str:
    """Upload a staged folder as one commit and return its address. The repository is made if need be; one that holds
    another kind of model is refused."""
    from huggingface_hub import HfApi

    api = HfApi(library_name=LIBRARY, library_version=__version__)
    with hub_errors(name), hub_progress(quiet):
        repository = api.create_repo(name.repository, private=private or None, exist_ok=True).repo_id
        there = set(api.list_repo_files(repository))
        if there & {CONFIG, *RUN_FILES}:
            _check_ours(api, name, there)
        if name.revision is not None:
            api.create_branch(repository, branch=name.revision, exist_ok=True)
        done = api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            revision=name.revision,
            commit_message=f"A run of dsui {__version__}",
            delete_patterns=list(FILES),  # of an earlier push, where this one has none of that name
        )
        return str(done.commit_url)


def _check_ours(api: object, name: HubName, there: set[str]) -> None:
    from huggingface_hub import HfApi

    assert isinstance(api, HfApi)
    if CONFIG not in there:
        raise DsuiError(f"{name.text} holds another model; choose a new name.")
    try:
        check_of_dsui(name, Path(api.hf_hub_download(name.repository, CONFIG)))
    except DsuiError as error:
        raise DsuiError(f"{name.text} holds another model; choose a new name.") from error


def _config(evidence: Evidence) -> dict[str, object]:
    """config.json: what the model is, without opening its weights."""
    facts = evidence.run
    return {
        "library_name": LIBRARY,
        "format": FORMAT,
        "dsui": __version__,
        "classes": list(facts.classes),
        **facts.config.mapping(),
    }
