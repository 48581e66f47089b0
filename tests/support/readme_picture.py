"""README's picture: two excerpts of the page that `dsui demo` writes, one above the other.

    python -m tests.support.readme_picture dsui-demo/report.html       # in the root of the repository; needs Chromium

writes docs/_static/report.png: the head of the page with its first table, and a row of figures of foreign images.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image

from tests.support.chromium import find_chromium, open_browser

PICTURE = Path("docs/_static/report.png")
WIDTH, MARGIN = 1180, 14
EXCERPTS = """(() => {
    const bottom = e => e.getBoundingClientRect().bottom, top = e => e.getBoundingClientRect().top;
    const foreign = document.querySelector("[id$='distribution-entropy']").closest("section");
    const row = [...foreign.querySelectorAll("figure")].slice(0, 3);
    foreign.querySelector(".terms")?.remove();
    return [[0, bottom(document.querySelector("main .note"))],
            [top(foreign.querySelector("h3")), Math.max(...row.map(bottom))]];
})()"""
"""Top and bottom of both."""


def excerpt_page(page: Path) -> Image.Image:
    executable = find_chromium()
    if executable is None:
        raise SystemExit("there is no Chromium here; install it first.")
    with tempfile.TemporaryDirectory() as profile, open_browser(executable, Path(profile)) as browser:
        browser.show(page, WIDTH)
        parts = [
            Image.open(io.BytesIO(browser.screenshot((0, top - MARGIN, WIDTH, bottom - top + 2 * MARGIN))))
            for top, bottom in browser.evaluate(EXCERPTS)
        ]
    picture = Image.new("RGB", (parts[0].width, sum(part.height for part in parts)), "white")
    picture.paste(parts[0], (0, 0))
    picture.paste(parts[1], (0, parts[0].height))
    return picture


if __name__ == "__main__":
    excerpt_page(Path(sys.argv[1])).quantize(128).save(PICTURE, optimize=True)
