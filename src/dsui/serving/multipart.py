"""The files of a form: parsed from a body in memory, at most so many, and nothing is written to a disk.

A file is a part of the form with the name `files` and a file name (RFC 7578).
"""

from __future__ import annotations

from typing import NamedTuple

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from dsui.serving.refusal import Refusal

FIELD = b"files"
MOST_OTHERS = 16
"""Parts that are no files; a form has a few at most."""


class UploadedFile(NamedTuple):
    name: str
    content: bytes


class _TooMany(Exception):  # noqa: N818
    pass


class _Form:
    """What the parser's calls add up to."""

    def __init__(self, most: int) -> None:
        self.most, self.files, self.others = most, list[UploadedFile](), 0
        self.complete = False
        self._header, self._value, self._disposition = b"", b"", b""
        self._name: str | None = None
        self._parts: list[bytes] = []

    def begin_part(self) -> None:
        self._disposition, self._name, self._parts = b"", None, []

    def add_header(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def add_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def end_header(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = self._value
        self._header = self._value = b""

    def end_headers(self) -> None:
        _, options = parse_options_header(self._disposition.decode("latin-1"))
        if options.get(b"name") == FIELD and b"filename" in options:
            self._name = options[b"filename"].decode(errors="replace")
            if len(self.files) == self.most:
                raise _TooMany
        else:
            self.others += 1
            if self.others > MOST_OTHERS:
                raise _TooMany

    def add_data(self, data: bytes, start: int, end: int) -> None:
        if self._name is not None:
            self._parts.append(data[start:end])

    def end_part(self) -> None:
        if self._name is not None:
            self.files.append(UploadedFile(self._name, b"".join(self._parts)))

    def end(self) -> None:
        self.complete = True


def parse_files(body: bytes, content_type: str, most: int) -> list[UploadedFile]:
    """The files in the order of the form; a Refusal unless there are 1 to `most`."""
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    form = _Form(most)
    try:
        if not boundary:
            raise FormParserError("no boundary")
        parser = MultipartParser(
            boundary,
            {
                "on_part_begin": form.begin_part,
                "on_part_data": form.add_data,
                "on_part_end": form.end_part,
                "on_header_field": form.add_header,
                "on_header_value": form.add_value,
                "on_header_end": form.end_header,
                "on_headers_finished": form.end_headers,
                "on_end": form.end,
            },
        )
        parser.write(body)
        parser.finalize()
    except _TooMany as error:
        raise Refusal(413, f"the form has more than {most:,} files; send them in several requests.") from error
    except FormParserError as error:
        raise Refusal(400, "the body is not the form that its head announces; send multipart/form-data.") from error
    if not form.complete:
        raise Refusal(400, "the form ends before its last boundary; send all of it.")
    if not form.files:
        raise Refusal(422, "the form has no file in the field `files`; add one, as curl -F files=@cat.png does.")
    return form.files
