"""Whether two data sets share classes, so that images of one are not foreign to the other.

Classes are compared by name alone, so "dog" is not found in "Chihuahua", nor "automobile" in "sports car".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dsui.data.registry import default_root
from dsui.data.tiny_imagenet import FOLDER as TINY_IMAGENET_FOLDER

if TYPE_CHECKING:
    from pathlib import Path

    from dsui.data.dataset import ImageSet

WORDS_FILE = f"{TINY_IMAGENET_FOLDER}/words.txt"
WORDNET_ID = re.compile(r"n\d{8}")
STOP_WORDS = frozenset({"and", "for", "in", "of", "on", "or", "other", "the", "unknown", "with"})
USUAL_NAMES = 2
PAIRS_NAMED = 5


def shared_classes(home: ImageSet, foreign: ImageSet, root: Path | None = None) -> tuple[tuple[str, str], ...]:
    """Pairs (home class, foreign class) in which both names mean the same thing, or one a kind of the other.

    Case and the plural s do not count. One name must equal the other or end with it, as "pickup_truck" ends with
    "truck"; a name that only begins with the other ("spider web") means something else. Where a name lists synonyms, as
    WordNet's do, any two may be equal, but only the first two may end with the other: "mountain lion" is the fourth
    name of a cougar. WordNet ids are looked up in Tiny ImageNet's words.txt below `root`, by default `default_root()`.
    """
    home_names, foreign_names = (_readable(images, root or default_root()) for images in (home, foreign))
    foreign_synonyms = [_synonyms(name) for name in foreign_names]
    return tuple(
        (ours, theirs)
        for ours in home_names
        for theirs, synonyms in zip(foreign_names, foreign_synonyms, strict=True)
        if _same_thing(_synonyms(ours), synonyms)
    )


def overlap_warning(home: ImageSet, foreign: ImageSet, root: Path | None = None) -> str | None:
    """One sentence if the two sets share classes, or if that is unknown because words.txt is missing."""
    root = root or default_root()
    coded = [images.name for images in (home, foreign) if any(map(WORDNET_ID.fullmatch, _readable(images, root)))]
    if len(coded) == 1:
        return (
            f"It is unknown whether {home.name} and {foreign.name} share classes, because those of {coded[0]} are "
            f"WordNet ids that {root / WORDS_FILE} does not translate; put Tiny ImageNet's words.txt there."
        )
    if not (pairs := shared_classes(home, foreign, root)):
        return None
    named = [f"{_usual_name(ours)} / {_usual_name(theirs)}" for ours, theirs in pairs[:PAIRS_NAMED]]
    listed = ", ".join([*named, "..."] if len(pairs) > PAIRS_NAMED else named)
    return (
        f"{home.name} and {foreign.name} share classes by name ({len(pairs)}: {listed}); "
        "images of these are not foreign, so leave them out or read the result with care."
    )


def _readable(images: ImageSet, root: Path) -> tuple[str, ...]:
    path = root / WORDS_FILE
    if not path.is_file() or not any(map(WORDNET_ID.fullmatch, images.classes)):
        return images.classes
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    names = dict(line.split("\t", 1) for line in lines if "\t" in line)
    return tuple(names.get(name, name) for name in images.classes)


def _synonyms(name: str) -> list[tuple[str, ...]]:
    """["tabby", "tabby cat"] of "tabby, tabby cats", each as its words; a synonym of stop words alone is left out."""
    listed = [re.findall(r"[^\W_]+", synonym) for synonym in re.split(r"[,/]", name.casefold())]
    return [tuple(map(_singular, words)) for words in listed if not STOP_WORDS.issuperset(words)]


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _same_thing(ours: list[tuple[str, ...]], theirs: list[tuple[str, ...]]) -> bool:
    usual = [(one, other) for one in ours[:USUAL_NAMES] for other in theirs[:USUAL_NAMES]]
    return not set(ours).isdisjoint(theirs) or any(_kind_of(*pair) or _kind_of(*reversed(pair)) for pair in usual)


def _kind_of(special: tuple[str, ...], general: tuple[str, ...]) -> bool:
    """Whether `special` ends with `general`; not so for numbers, because "house 5" is not a kind of "5"."""
    return special[-len(general) :] == general and not all(word.isdecimal() for word in general)


def _usual_name(name: str) -> str:
    return name.split(",", maxsplit=1)[0]
