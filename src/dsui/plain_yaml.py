"""YAML from outside: text, numbers, true, false, null, lists and mappings, within limits, or why it cannot be read.

PyYAML builds what a file asks for. Aliases can make a value of 10^10 parts from 400 bytes, brackets nest deeper than
Python recurses, and a tag such as !!timestamp fails in a way of its own for every wrong value. Here parts are counted
with every alias at the size of what it repeats, depth is limited, and tags of other types than these are refused.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from dsui.excerpt import excerpt, shorten

HALF = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""Half of a character; the rest of the range stands for bytes of file names that are no text (PEP 383)."""

MOST_CHARACTERS = 1 << 18
MOST_PARTS = 20_000
"""Values and keys, repeated ones counted each time."""
DEEPEST = 20
LONGEST_NUMBER = 100
"""Characters of a number."""
TAGS = {f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map", "merge")}


class YamlError(ValueError):
    """Why text is not YAML that dsui reads: a clause that completes "... is not valid YAML: ..."."""


def load_yaml(text: str) -> object:
    """The value that YAML text describes."""
    if len(text) > MOST_CHARACTERS:
        raise YamlError(f"it has {len(text):,} characters, more than {MOST_CHARACTERS:,}")
    loader = None
    try:
        loader = _Loader(text)
        return loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise YamlError(f"{shorten(error.problem)} in line {line}") from error
    except yaml.reader.ReaderError as error:
        raise YamlError(f"{error.reason} in line {text.count(chr(10), 0, error.position) + 1}") from error
    finally:
        if loader is not None:
            loader.dispose()


class _Loader(yaml.SafeLoader):
    """Refuses what is too large, too deep or of another type while the text is parsed, before any value is built."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._parts = self._depth = 0
        self._sizes: dict[int, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        before = self._parts
        self._depth += 1
        if self._depth > DEEPEST:
            raise _refused(f"it nests deeper than {DEEPEST} levels", event.start_mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        if isinstance(event, yaml.AliasEvent):
            if id(node) not in self._sizes:
                raise _refused(f"the alias {excerpt(event.anchor)} stands inside what it repeats", event.start_mark)
            self._parts += self._sizes[id(node)]
        else:
            self._parts += 1
            self._sizes[id(node)] = self._parts - before
        if self._parts > MOST_PARTS:
            raise _refused(
                f"it has more than {MOST_PARTS:,} values, those that aliases repeat included", event.start_mark
            )
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> object:
        if node.tag not in TAGS:
            raise _refused(f"the tag {excerpt(node.tag)} is not used here", node.start_mark)
        if isinstance(node, yaml.ScalarNode) and HALF.search(node.value):
            raise _refused("a text holds half a character", node.start_mark)
        is_number = node.tag.endswith((":int", ":float"))
        if is_number and isinstance(node, yaml.ScalarNode) and len(node.value) > LONGEST_NUMBER:
            raise _refused(f"a number has {len(node.value):,} characters", node.start_mark)
        try:
            return super().construct_object(node, deep)
        except (ValueError, KeyError, IndexError, AttributeError, TypeError, OverflowError) as error:
            kind = node.tag.rpartition(":")[2]
            raise _refused(f"{excerpt(node.value)} is not of the type {kind}", node.start_mark) from error


def _refused(problem: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


# a date is text: nothing here takes dates
_Loader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if tag in TAGS]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
