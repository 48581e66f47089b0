"""A registry: objects by name, each imported only when it is looked up.

    METHODS = LazyRegistry({"msp": "dsui.methods.msp:MaxSoftmax"})
    list(METHODS)        # ["msp"], nothing is imported
    METHODS["msp"]       # imports dsui.methods.msp and gives its class

Importing PyTorch takes seconds, which help texts and a shell's completion cannot wait for; they need names alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Generic, TypeVar, cast

T = TypeVar("T")


class LazyRegistry(MutableMapping[str, T], Generic[T]):
    """A dictionary whose values are "module:attribute", or the object itself; looking up a name gives the object.

    `items()` and `values()` look up, and thereby import, every entry.
    """

    def __init__(self, entries: Mapping[str, str | T]) -> None:
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> T:
        entry = self._entries[name]
        if not isinstance(entry, str):
            return entry
        module, _, attribute = entry.partition(":")
        return cast("T", getattr(import_module(module), attribute))

    def __setitem__(self, name: str, entry: str | T) -> None:
        self._entries[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries
