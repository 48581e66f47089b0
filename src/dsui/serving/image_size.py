"""How many pixels an image has by its header, before any of them is decoded."""

from __future__ import annotations

import io
import warnings

from PIL import Image

from dsui.runtime import ImageError


def check_pixels(content: bytes, most: int) -> None:
    """Raise an ImageError for an image of more than `most` pixels; what is no image is left to the decoder."""
    try:
        with Image.open(io.BytesIO(content)) as image:
            width, height = image.size
    except Exception:  # noqa: BLE001 - the decoder says what is wrong
        return
    if width * height > most:
        raise ImageError(f"its header announces {width} x {height} pixels, more than {most:,}")


warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
