"""The errors of dsui that are not plain ValueErrors."""

from __future__ import annotations


class DsuiError(Exception):
    """Anything dsui can explain to a user in one sentence; the command line prints it and exits with 1."""


class DivergenceError(DsuiError):
    """Training left the region in which its objective means anything."""


class DataError(DsuiError):
    """A data set is missing, incomplete or unreadable; the sentence names the file and what to do."""
