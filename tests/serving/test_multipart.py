"""Forms: what httpx encodes is what comes out, and a form that is wrong is refused with a sentence."""

from __future__ import annotations

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsui.serving.multipart import parse_files
from dsui.serving.refusal import Refusal

NAMES = st.text(st.characters(min_codepoint=32, exclude_characters='"\\\x7f', exclude_categories=["Cs"]), max_size=20)


def form(files: list[tuple[str, bytes]], field: str = "files") -> tuple[bytes, str]:
    parts = [(field, (name, content, "image/png")) for name, content in files]
    request = httpx.Request("POST", "http://here/", files=parts)
    return request.read(), request.headers["content-type"]


@given(st.lists(st.tuples(NAMES.filter(bool), st.binary(max_size=200)), min_size=1, max_size=5))
@settings(max_examples=60)
def test_every_file_comes_out_as_it_went_in(files: list[tuple[str, bytes]]) -> None:
    body, kind = form(files)
    found = parse_files(body, kind, 5)
    assert [each.content for each in found] == [content for _, content in files]
    assert [each.name for each in found] == [name for name, _ in files]


def refusal(body: bytes, kind: str, most: int = 5) -> Refusal:
    with pytest.raises(Refusal) as refused:
        parse_files(body, kind, most)
    return refused.value


def test_one_file_too_many_is_refused() -> None:
    body, kind = form([("a", b"1")] * 6)
    assert refusal(body, kind).status == 413
    assert len(parse_files(body, kind, 6)) == 6


@given(st.integers(0, 400))
def test_a_form_that_is_cut_off_is_refused(length: int) -> None:
    body, kind = form([("a.png", b"1" * 100), ("b.png", b"2" * 100)])
    end = len(body) - 4  # the last boundary ends with two dashes and a line
    assert refusal(body[: min(length, end)], kind).status == 400


@given(st.binary(max_size=300), st.sampled_from(["multipart/form-data; boundary=x", "multipart/form-data", ""]))
def test_bytes_that_are_no_form_are_refused_and_nothing_else_happens(body: bytes, kind: str) -> None:
    assert refusal(body, kind).status in {400, 422}


def test_a_form_without_files_says_which_field_they_belong_in() -> None:
    body, kind = form([("a.png", b"1")], field="images")
    found = refusal(body, kind)
    assert found.status == 422
    assert "`files`" in found.sentence


def test_a_flood_of_other_fields_is_refused() -> None:
    body, kind = form([("a.png", b"1")] * 50, field="other")
    assert refusal(body, kind).status == 413
