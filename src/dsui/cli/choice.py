"""Words a user types, checked against those there are; a wrong one is answered with the nearest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os.path import expanduser, isdir

from dsui.cli import names
from dsui.errors import DataError, DsuiError
from dsui.spelling import unknown_name

FOLDER = "folder:"


class WrongUsage(DsuiError):  # noqa: N818 - reads better where it is raised
    """What was typed cannot be meant; the command line exits with 2."""


class UnknownData(WrongUsage, DataError):  # noqa: N818
    """There is no data set of that name."""


@contextmanager
def typed() -> Iterator[None]:
    """What the library finds wrong in here are words of the user."""
    try:
        yield
    except (DsuiError, ValueError) as mistake:
        raise WrongUsage(str(mistake)) from mistake


def known(kind: str, name: str, there: Iterable[str]) -> str:
    """The name, if it is one of those."""
    every = list(there)
    if name not in every:
        raise WrongUsage(unknown_name(kind, name, every))
    return name


def chosen(kind: str, text: str, there: Iterable[str]) -> list[str]:
    """The names in "a,b", or all of them for "all"."""
    every = list(dict.fromkeys(there))
    return every if text == "all" else [known(kind, name, every) for name in listed(text)]


def listed(text: str) -> list[str]:
    """The words of "a, b", each once."""
    return list(dict.fromkeys(word.strip() for word in text.split(",")))


def foreign_sets(text: str) -> list[str] | None:
    """The sets in "a,folder:b"; None for those at hand, where none is named."""
    return [data_set(name, names.foreign()) for name in listed(text)] if text else None


def data_set(name: str, more: Iterable[str] = ()) -> str:
    """A name of `dsui data list`, one of `more`, or folder:PATH."""
    if name == FOLDER:
        raise UnknownData("folder: needs a path, as in folder:photos.")
    if not name.startswith(FOLDER) and name not in (every := (*names.data(), *more, f"{FOLDER}PATH")):
        if isdir(expanduser(name)):
            raise UnknownData(f"no data set {name!r}; a folder is named {FOLDER}{name}.")
        raise UnknownData(unknown_name("data set", name, every))
    return name
