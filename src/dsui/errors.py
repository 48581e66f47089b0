"""The errors of dsui that are not plain ValueErrors."""

from __future__ import annotations


class DsuiError(Exception):
    """Anything dsui can explain to a user in one sentence; the command line prints it and exits with 1."""


class Stopped(DsuiError):  # noqa: N818 - it is not an error
    """The user stopped the command; the sentence says what is kept. The command line exits with 130."""


class DivergenceError(DsuiError):
    """Training left the region in which its objective is meaningful."""


class DataError(DsuiError):
    """A data set is missing, incomplete or unreadable; the sentence names the file and what to do."""


class ModelError(DsuiError):
    """An ONNX file cannot be used; the sentence names the file and what to do."""


class RunError(DsuiError):
    """The folder of a run cannot be used for this; the sentence names the file and what to do."""
