"""CITATION.cff, as tools that cite read it: the Citation File Format 1.2.0."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

import dsui

ROOT = Path(__file__).parents[1]
REQUIRED = {"cff-version", "message", "title", "authors"}
REQUIRED_OF_A_REFERENCE = {"type", "title", "authors"}

citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())


def test_has_what_the_format_requires_for_software_and_references() -> None:
    assert citation.keys() >= REQUIRED
    assert citation["cff-version"] == "1.2.0"
    assert citation["type"] == "software"
    assert all(reference.keys() >= REQUIRED_OF_A_REFERENCE for reference in citation["references"])


def test_states_version_and_licence_of_the_package() -> None:
    assert citation["version"] == dsui.__version__
    assert citation["license"] == "MIT"
    assert "MIT License" in (ROOT / "LICENSE").read_text()


def test_names_every_author_and_a_doi_of_the_paper() -> None:
    article = citation["references"][0]
    assert " ".join(author["family-names"] for author in article["authors"]) == "Xie Ma Xue Zhang Sun Zheng Guo"
    assert re.fullmatch(r"10\.1109/TIP\.2021\.\d{7}", article["doi"])
    assert article["end"] - article["start"] == 11
