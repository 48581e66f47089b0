"""What a person sees is what is read: depth, transparency, palettes, CMYK, rotation, animation, cropping."""

from __future__ import annotations

import io
import os
import resource
import signal
import struct
import threading
import time
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageFile

from dsui.data import decode
from dsui.data.decode import ImageError, PixelBudget, central_square, decode_image, extensions, pixels, read_header

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

RED, WHITE = (255, 0, 0), (255, 255, 255)


def seen(path: Path, channels: int = 3) -> Any:
    """The colour or level of the top left pixel."""
    return decode_image(path, channels).getpixel((0, 0))


@pytest.mark.parametrize("end", [".png", ".tif", ".pgm"])
def test_16_bit_grey_is_scaled_not_clipped(tmp_path: Path, end: str) -> None:
    path = tmp_path / f"deep{end}"
    values = np.array([[0, 257 * 100, 65535]], dtype=np.uint16)
    Image.fromarray(values).save(path)
    assert pixels(decode_image(path, 1))[0].tolist() == [[0, 100, 255]]


@pytest.mark.parametrize(
    ("values", "levels"),
    [
        (np.array([[0.0, 0.2, 1.0]], dtype=np.float32), [0, 51, 255]),
        (np.array([[-100.0, -60.0, 100.0]], dtype=np.float32), [0, 51, 255]),
        (np.array([[70000, 80000, 120000]], dtype=np.int32), [0, 51, 255]),
        (np.array([[70000, 70000, 70000]], dtype=np.int32), [0, 0, 0]),
    ],
)
def test_32_bit_values_beyond_the_usual_range_use_their_own(tmp_path: Path, values: Any, levels: list[int]) -> None:
    path = tmp_path / "deep.tif"
    Image.fromarray(values).save(path)
    assert pixels(decode_image(path, 1)).reshape(-1).tolist() == levels


def test_pixels_that_are_not_numbers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "nan.tif"
    Image.fromarray(np.array([[np.nan, 1]], dtype=np.float32)).save(path)
    with pytest.raises(ImageError, match="not numbers"):
        decode_image(path, 3)


def test_what_is_transparent_shows_white(tmp_path: Path) -> None:
    Image.new("RGBA", (2, 2), (255, 0, 0, 0)).save(tmp_path / "clear.png")
    assert seen(tmp_path / "clear.png") == WHITE
    Image.new("RGBA", (2, 2), (255, 0, 0, 128)).save(tmp_path / "half.png")
    assert seen(tmp_path / "half.png") == (255, 127, 127)
    Image.new("LA", (2, 2), (0, 0)).save(tmp_path / "grey.png")
    assert seen(tmp_path / "grey.png", channels=1) == 255


@pytest.mark.parametrize(("transparency", "colour"), [(None, RED), (0, WHITE), (b"\x00\xff", WHITE)])
@pytest.mark.parametrize("end", [".png", ".gif"])
def test_palettes_become_their_colours(tmp_path: Path, end: str, transparency: int | bytes | None, colour: Any) -> None:
    if end == ".gif" and isinstance(transparency, bytes):
        transparency = 0
    image = Image.new("P", (2, 2), 0)
    image.putpalette([*RED, 0, 0, 255])
    image.putpixel((1, 1), 1)
    options: dict[str, Any] = {} if transparency is None else {"transparency": transparency}
    image.save(tmp_path / f"palette{end}", **options)
    assert seen(tmp_path / f"palette{end}") == colour


def test_cmyk_becomes_rgb_and_one_bit_black_and_white(tmp_path: Path) -> None:
    Image.new("CMYK", (8, 8), (0, 255, 255, 0)).save(tmp_path / "print.jpg", quality=100)
    # JPEG rounds each of the four inks by at most a few levels.
    assert np.allclose(seen(tmp_path / "print.jpg"), RED, atol=4)
    Image.new("1", (2, 2), 1).save(tmp_path / "fax.tif")
    assert seen(tmp_path / "fax.tif") == WHITE


@pytest.mark.parametrize("mode", ["RGB", "L", "I;16"])
def test_exif_rotation_is_applied(tmp_path: Path, mode: str) -> None:
    upright = Image.new(mode, (4, 2))
    upright.putpixel((0, 0), RED if mode == "RGB" else 65535 if mode == "I;16" else 255)
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: rotate by 90 degrees clockwise to see it upright
    path = tmp_path / "turned.png"
    upright.transpose(Image.Transpose.ROTATE_90).save(path, exif=exif)
    image = decode_image(path, 3)
    assert image.size == (4, 2)
    assert image.getpixel((0, 0)) == (RED if mode == "RGB" else WHITE)


@pytest.mark.parametrize("end", [".gif", ".png", ".webp", ".tif"])
def test_of_an_animation_the_first_frame_counts(tmp_path: Path, end: str) -> None:
    first, second = Image.new("RGB", (8, 8), RED), Image.new("RGB", (8, 8), "blue")
    options: dict[str, Any] = {"lossless": True} if end == ".webp" else {}
    first.save(tmp_path / f"moving{end}", save_all=True, append_images=[second], **options)
    assert seen(tmp_path / f"moving{end}") == RED


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40))
def test_any_image_becomes_a_square_of_the_wanted_size(width: int, height: int, size: int) -> None:
    assert central_square(Image.new("RGB", (width, height)), size).size == (size, size)


@pytest.mark.parametrize(("width", "height"), [(32, 32), (40, 32), (32, 57)])
def test_only_the_centre_is_cut_where_the_shorter_side_is_right(width: int, height: int) -> None:
    values = np.random.default_rng(0).integers(0, 256, (height, width), dtype=np.uint8)
    top, left = (height - 32) // 2, (width - 32) // 2
    assert np.array_equal(
        pixels(central_square(Image.fromarray(values), 32))[0], values[top : top + 32, left : left + 32]
    )


def test_downscaling_averages_instead_of_picking() -> None:
    stripes = np.tile(np.array([0, 255], dtype=np.uint8), (64, 32))
    # Antialiased, stripes of one pixel are grey everywhere; the filter's rim costs less than 40 levels.
    assert np.abs(pixels(central_square(Image.fromarray(stripes), 8)).astype(int) - 127).max() < 40


def png_header(width: int, height: int) -> bytes:
    chunk = b"IHDR" + struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))


@pytest.mark.parametrize("side", [10_000, 31_623, 2**31 - 1])
def test_a_picture_of_a_billion_pixels_is_refused_by_its_header(tmp_path: Path, side: int) -> None:
    path = tmp_path / "bomb.png"
    path.write_bytes(png_header(side, side) + b"\x00\x00\x00\x00IDAT\x35\xaf\x06\x1e")
    with pytest.raises(ImageError, match=r"pixels"):
        read_header(path)


def test_empty_false_and_truncated_files_are_refused_with_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    path.write_bytes(b"")
    with pytest.raises(ImageError, match="the file is empty"):
        read_header(path)
    path.write_text("no image")
    with pytest.raises(ImageError, match=r"not an image although its name ends in \.png"):
        read_header(path)
    stream = io.BytesIO()
    Image.effect_noise((64, 64), 50).save(stream, "PNG")
    path.write_bytes(stream.getvalue()[:1000])
    assert read_header(path) == ((64, 64), "L")
    with pytest.raises(ImageError, match="truncated"):
        decode_image(path, 3)


def test_no_external_program_and_no_global_setting_of_pillow_is_used(tmp_path: Path) -> None:
    settings = (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES)
    assert not {".eps", ".ps", ".pdf", ".h5", ".mpg", ".wmf"} & extensions()
    assert {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".tga"} <= extensions()
    disguised = tmp_path / "script.png"
    Image.new("RGB", (2, 2)).save(disguised, "EPS")
    with pytest.raises(ImageError, match="not an image"):
        decode_image(disguised, 3)
    assert settings == (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES)
    assert not ImageFile.LOAD_TRUNCATED_IMAGES


def test_what_is_no_file_on_a_disk_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(ImageError, match="it is a pipe and not a file"):
        decode_image(tmp_path / "pipe.png", 3)


def decoded(image: Image.Image, path: Path) -> NDArray[np.uint8]:
    image.save(path)
    return pixels(decode_image(path, 3))


def test_strips_make_the_same_image_as_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (23, 17, 4), dtype=np.uint8)
    rgba = Image.fromarray(noise)
    palette = Image.fromarray(noise[..., :3]).quantize(9)
    palette.info["transparency"] = bytes(range(0, 180, 20))
    deep = Image.fromarray(noise[..., 0].astype(np.uint16) * 257)
    floats = Image.fromarray(noise[..., 1].astype(np.float32) - 100)
    cases = [(rgba, "a.png"), (palette, "b.png"), (deep, "c.png"), (floats, "d.tif"), (rgba.convert("LA"), "e.png")]
    whole = [decoded(image, tmp_path / name) for image, name in cases]
    monkeypatch.setattr(decode, "STRIP", 40)  # two rows at once
    for (image, name), expected in zip(cases, whole, strict=True):
        assert np.array_equal(decoded(image, tmp_path / name), expected)
    alpha = noise[..., 3:] / 255.0
    on_white = noise[..., :3] * alpha + 255 * (1 - alpha)  # Pillow rounds this twice
    assert np.abs(whole[0].transpose(1, 2, 0) - on_white).max() <= 1


def test_threads_work_on_no_more_pixels_at_once_than_the_budget() -> None:
    budget, at_work, most, guard = PixelBudget(100), 0, 0, threading.Lock()

    def work(size: int) -> None:
        nonlocal at_work, most
        with budget.taking(size):
            with guard:
                at_work += size
                most = max(most, at_work)
            time.sleep(0.002)
            with guard:
                at_work -= size

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, [40, 60, 10, 100, 30, 30, 30, 30] * 6))
    assert 60 < most <= 100  # several at once, never too many
    with budget.taking(10**9):  # an image larger than the budget works alone
        pass
    with pytest.raises(KeyError), budget.taking(100):
        raise KeyError
    with budget.taking(100):  # what failed gave its share back
        pass


def test_every_decoding_takes_its_share_of_one_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []

    class Noted(PixelBudget):
        @contextmanager
        def taking(self, pixels: int) -> Iterator[None]:
            taken.append(pixels)
            with super().taking(pixels):
                yield

    monkeypatch.setattr(decode, "BUDGET", Noted(decode.IN_WORK))
    Image.new("RGB", (30, 20)).save(tmp_path / "a.png")
    decode_image(tmp_path / "a.png", 3)
    assert taken == [600]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")
def test_a_forked_process_does_not_wait_for_threads_that_it_does_not_have() -> None:
    with decode.BUDGET.taking(decode.IN_WORK), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a fork beside threads
        if (child := os.fork()) == 0:
            with decode.BUDGET.taking(decode.IN_WORK):
                os._exit(7)
    for _ in range(500):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 7
            return
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pytest.fail("the forked process waits for ever")


def test_a_jpeg_of_very_many_scans_is_refused_before_it_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.BytesIO()
    Image.effect_noise((256, 256), 50).save(stream, "JPEG", progressive=True)
    content = stream.getvalue()
    start = content.rindex(b"\xff\xda")
    scan = content[start:-2]
    (tmp_path / "few.jpg").write_bytes(content)
    (tmp_path / "many.jpg").write_bytes(content[:-2] + scan * 200 + content[-2:])
    preview = b"\xff\xe1" + (60_002).to_bytes(2, "big") + b"\xff\xda" * 30_000  # no scan: it stands in the metadata
    (tmp_path / "preview.jpg").write_bytes(content[:2] + preview + content[2:] + b"\xff\xda" * 30_000)
    monkeypatch.setattr(decode, "MOST_PASSED", 100 * 256 * 256)
    for name in ("few.jpg", "preview.jpg"):
        assert decode_image(tmp_path / name, 1).size == (256, 256)
    with pytest.raises(ImageError, match="it is a JPEG of 65,536 pixels in 101 scans or more, which takes too long"):
        decode_image(tmp_path / "many.jpg", 1)


def test_a_format_that_is_decoded_slowly_has_a_limit_of_its_own(tmp_path: Path) -> None:
    header = b"qoif" + struct.pack(">II", 4097, 4096) + b"\x03\x00"
    (tmp_path / "large.qoi").write_bytes(header + b"\xfd" * 100)
    with pytest.raises(ImageError, match="announces 4097 x 4096 pixels, more than 16,777,216"):
        read_header(tmp_path / "large.qoi")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")
@pytest.mark.parametrize("mode", ["I;16", "RGBA"])
def test_a_large_image_of_few_bytes_takes_a_bounded_memory(tmp_path: Path, mode: str) -> None:
    side = 3000
    path = tmp_path / "large.png"
    Image.new(mode, (side, side)).save(path)
    assert path.stat().st_size < 50_000
    receiver, sender = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a fork beside threads
        if (child := os.fork()) == 0:
            try:
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                decode_image(path, 3)
                taken = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
                os.write(sender, str(taken).encode())
            finally:
                os._exit(0)
    os.close(sender)
    os.waitpid(child, 0)
    taken = int(os.read(receiver, 100))  # nothing where the image could not be decoded
    os.close(receiver)
    assert taken / side**2 < 16  # bytes for each pixel: 8.5 and 10.5 when written; 26 and 12 without strips
