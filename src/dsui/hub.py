"""Models on the Hugging Face hub, by name: hf:USER/NAME, or hf:USER/NAME@REVISION for one branch, tag or commit.

A model is what `dsui push` wrote, and nothing else: only FILES are fetched, none of which can hold code, and only when
the model's config.json says that it is one of dsui. They come through huggingface_hub, so its cache, its tokens
(`hf auth login`, HF_TOKEN) and its settings (HF_ENDPOINT, HF_HUB_OFFLINE) are in use. The cache is shared by whatever
uses it on this machine, and nothing is written to it here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from dsui.errors import DsuiError
from dsui.excerpt import excerpt, shorten
from dsui.plain_json import load_json
from dsui.regular_file import read_regular

PREFIX = "hf:"
REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9_][A-Za-z0-9_.-]*")
CONFIG, CARD = "config.json", "README.md"
RUN_FILES = ("model.safetensors", "thresholds.safetensors", "config.yaml", "results.jsonl")
"""What is taken from the folder of a run, the weights first."""
FILES = (CONFIG, CARD, *RUN_FILES)
LIBRARY, FORMAT = "dsui", 1
LARGEST_CONFIG = 1 << 23
NOT_ALLOWED = {401, 403}
"""What the hub answers to those who are not logged in, or who may not do this."""


class HubName(NamedTuple):
    """`repository` is USER/NAME; `revision` None means the newest."""

    repository: str
    revision: str | None

    @property
    def text(self) -> str:
        return f"{PREFIX}{self.repository}" + (f"@{self.revision}" if self.revision else "")


def is_hub_name(name: Path | str) -> bool:
    """Whether it names a model of the hub, not a folder."""
    return str(name).startswith(PREFIX)


def parse_hub_name(text: str) -> HubName:
    """The parts of hf:USER/NAME@REVISION; a DsuiError where it has another form."""
    check_hub_installed()
    repository, at, revision = text.removeprefix(PREFIX).partition("@")
    if REPOSITORY.fullmatch(repository) is None or bool(at) != bool(revision):
        raise DsuiError(f"{excerpt(text)} is no model of the hub; write hf:USER/NAME, or hf:USER/NAME@REVISION.")
    return HubName(repository, revision or None)


def check_hub_installed() -> None:
    """A DsuiError where the package is missing."""
    if find_spec("huggingface_hub") is None:
        raise DsuiError("models of the hub need huggingface_hub; run pip install 'dsui[hub]'.")


def fetch(text: str, quiet: bool = False) -> Path:
    """The folder of the model on this machine. What is there already is not fetched again."""
    name = parse_hub_name(text)
    from huggingface_hub import snapshot_download

    with hub_errors(name), hub_progress(quiet):
        first = Path(snapshot_download(name.repository, revision=name.revision, allow_patterns=[CONFIG]))
        check_of_dsui(name, first / CONFIG)
        # the commit that was looked at, not what the name means a moment later
        return Path(snapshot_download(name.repository, revision=first.name, allow_patterns=list(FILES)))


def check_of_dsui(name: HubName, config: Path) -> None:
    """A DsuiError unless the config.json says that the model is one that this version can read."""
    try:
        found: Any = load_json(read_regular(config, LARGEST_CONFIG))
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict) or found.get("library_name") != LIBRARY:
        raise DsuiError(
            f"{name.text} is no model of dsui; name one that `dsui push` wrote, or use its network by "
            f"--backbone {PREFIX}{name.repository}."
        )
    if found.get("format") != FORMAT:
        raise DsuiError(f"{name.text} was written by another version of dsui; install that one.")


def is_cached(folder: Path) -> bool:
    """Whether a folder lies in the cache of huggingface_hub, where files may be shared and must not be written."""
    where = folder.absolute().parent
    return where.name == "snapshots" and where.parent.name.startswith("models--")


@contextmanager
def hub_errors(name: HubName) -> Iterator[None]:
    """Turn the errors of huggingface_hub and of the network into sentences."""
    from huggingface_hub import errors

    try:
        yield
    except DsuiError:
        raise
    except errors.RevisionNotFoundError as error:
        raise DsuiError(f"{name.text}: there is no such revision; name a branch, a tag or a commit.") from error
    except errors.LocalEntryNotFoundError as error:
        raise DsuiError(
            f"{name.text} is not on this machine, and the hub cannot be reached; check the network and HF_HUB_OFFLINE."
        ) from error
    except Exception as error:  # those of the network have no base that is the same in all versions
        status = getattr(getattr(error, "response", None), "status_code", None)
        if isinstance(error, errors.RepositoryNotFoundError) or status in NOT_ALLOWED:
            raise DsuiError(
                f"{name.text} is not on the hub, or you may not use it; correct the name, or call `hf auth login`."
            ) from error
        raise DsuiError(f"{name.text}: the hub does not answer as it should ({shorten(error)}).") from error


@contextmanager
def hub_progress(quiet: bool) -> Iterator[None]:
    """Bars of huggingface_hub on a terminal alone, and none of its remarks."""
    from huggingface_hub.utils import logging
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    hidden = (quiet or sys.stderr is None or not sys.stderr.isatty()) and not are_progress_bars_disabled()
    if hidden:
        disable_progress_bars()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if hidden:
            enable_progress_bars()
