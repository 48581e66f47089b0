"""CIFAR loaders on files with the official opcodes, damaged files and hostile pickles."""

from __future__ import annotations

import os
import pickle
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsui.data.cifar import cifar10, cifar100
from dsui.errors import DataError
from tests.support.official_files import CIFAR10_NAMES, python2_pickle, random_pixels, write_cifar10, write_cifar100

BATCH = python2_pickle({"data": random_pixels(2, 3072), "labels": [0, 1]})


def test_the_official_opcodes_are_those_that_numpy_itself_understands() -> None:
    content = pickle.loads(BATCH, encoding="bytes")  # noqa: S301 - our own bytes
    assert np.array_equal(content[b"data"], random_pixels(2, 3072))
    assert content[b"labels"] == [0, 1]


def test_cifar10_joins_the_batches_in_order_with_channels_first(tmp_path: Path) -> None:
    rows = write_cifar10(tmp_path)
    train = cifar10(tmp_path, "train")
    assert train.classes == tuple(CIFAR10_NAMES)
    assert train.labels.tolist() == [0, 1, 2, 3] * 5
    assert np.array_equal(train.images.numpy(), rows.reshape(20, 3, 32, 32))
    assert cifar10(tmp_path, "test").images.shape == (4, 3, 32, 32)


def test_cifar100_has_the_fine_labels(tmp_path: Path) -> None:
    write_cifar100(tmp_path)
    for split in ("train", "test"):
        images = cifar100(tmp_path, split)
        assert images.labels.tolist() == [99, 98, 97, 96, 95, 94]
        assert images.classes[99] == "fine99"


def test_a_pickle_written_by_python_3_with_bytes_reads_the_same(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    path = tmp_path / "cifar-10-batches-py" / "test_batch"
    content = {b"data": random_pixels(3, 3072), b"labels": [1, 2, 3], b"filenames": [b"", b"\xff.png", b"x"]}
    path.write_bytes(pickle.dumps(content, protocol=2))
    assert torch.equal(cifar10(tmp_path, "test").images.flatten(1), torch.from_numpy(random_pixels(3, 3072)))


class Touch:
    """Unpickled without care, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(6))
def test_a_hostile_pickle_runs_nothing_and_is_named_with_what_it_wanted(tmp_path: Path, protocol: int) -> None:
    write_cifar10(tmp_path)
    path, trace = tmp_path / "cifar-10-batches-py" / "test_batch", tmp_path / "trace"
    path.write_bytes(pickle.dumps({b"data": Touch(trace)}, protocol=protocol))
    pickle.loads(path.read_bytes())  # noqa: S301 - the attack is real
    trace.rmdir()
    with pytest.raises(DataError, match=r"test_batch asks to run (posix|nt)\.mkdir"):
        cifar10(tmp_path, "test")
    assert not trace.exists()


@pytest.mark.parametrize(
    "code",
    [
        b"c__builtin__\neval\n(V1\ntR.",
        b"cnumpy\nload\n(Vx\ntR.",
        b"cnumpy.core.multiarray\nscalar\n.",
        b"cfunctools\npartial\n.",
        b"\x80\x04\x8c\x05numpy\x8c\x0cndarray.dump\x93.",
    ],
)
def test_near_misses_of_the_allowed_names_are_refused(tmp_path: Path, code: bytes) -> None:
    write_cifar10(tmp_path)
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(code)
    with pytest.raises(DataError, match="asks to run"):
        cifar10(tmp_path, "test")


def test_a_missing_file_is_named_with_the_command_that_fetches_it(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    (tmp_path / "cifar-10-batches-py" / "data_batch_3").unlink()
    with pytest.raises(DataError, match=r"data_batch_3 is missing; run `dsui data get cifar10`.*--root"):
        cifar10(tmp_path, "train")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({"labels": [0, 1]}, "`data` is not uint8"),
        ({"data": random_pixels(2, 3071), "labels": [0, 1]}, "`data` is not uint8"),
        ({"data": random_pixels(2, 3072), "labels": [0]}, "not a list of 2 labels"),
        ({"data": random_pixels(2, 3072), "labels": [0, 10]}, r"outside 0\.\.9"),
        ({"data": random_pixels(2, 3072), "labels": [0, -1]}, r"outside 0\.\.9"),
        ({"data": random_pixels(2, 3072).astype(np.int64), "labels": [0, 1]}, "type b'i8'"),
        ([1, 2], "no dictionary"),
    ],
)
def test_wrong_content_is_damage_that_says_what_is_wrong(tmp_path: Path, content: object, why: str) -> None:
    write_cifar10(tmp_path)
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(python2_pickle(content))
    with pytest.raises(DataError, match=f"test_batch is damaged: .*{why}"):
        cifar10(tmp_path, "test")


def nested(opcodes: bytes, end: bytes) -> bytes:
    """A pickle of a tuple of 2^99 parts: in each step, a tuple that holds the former one twice."""
    return b"\x80\x02" + opcodes + b"".join(b"q%ch%c\x86" % (i, i) for i in range(1, 100)) + end


@pytest.mark.parametrize(
    "content",
    [
        nested(b"}K\x01", b"K\x01s."),  # as a key, of which Python computes the hash
        nested(b"cnumpy\ndtype\nK\x01", b"\x85R."),  # as the code of a type, which a message would show
        nested(b"c_codecs\nencode\nX\x00\x00\x00\x00K\x01", b"\x86R."),  # as an encoding
        b"\x80\x02(" + b"K\x01" * 17 + b"t.",
        b"\x80\x02cnumpy\ndtype\n}b.",  # sets the state of a class
        b"\x80\x02}(K\x01K\x02u.",
        b"\x80\x02(K\x01K\x02d.",
        b"\x80\x04\x8f(K\x01\x90.",  # a set
        b"\x80\x02K\x01Q.",  # a persistent identifier
        b"\x80\x02\x82\x01.",  # an extension
    ],
)
def test_values_on_which_python_works_for_ever_are_refused_at_once(tmp_path: Path, content: bytes) -> None:
    write_cifar10(tmp_path)
    assert len(content) < 1000
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(content)
    began = time.monotonic()
    with pytest.raises(DataError, match=r"test_batch is damaged") as raised:
        cifar10(tmp_path, "test")
    assert time.monotonic() - began < 5  # for ever without the limits
    assert len(str(raised.value)) < 400


def test_a_pipe_or_a_file_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar10(tmp_path)
    monkeypatch.setattr("dsui.data.unpickle.LARGEST", 100)
    with pytest.raises(DataError, match=r"batches\.meta cannot be read \(it holds \d+ bytes, more than the 100"):
        cifar10(tmp_path, "test")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(BATCH) - 1), st.binary(max_size=12), st.booleans())
def test_any_damage_is_a_data_error_or_harmless(position: int, noise: bytes, cut: bool) -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder)
        write_cifar10(root, per_batch=1)
        rest = b"" if cut else BATCH[position + len(noise) :]
        (root / "cifar-10-batches-py" / "test_batch").write_bytes(BATCH[:position] + noise + rest)
        with suppress(DataError):
            assert cifar10(root, "test").shape == (3, 32, 32)
