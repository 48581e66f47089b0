"""The page in a real browser: a person drops an image and reads the verdict, in light and dark."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import httpx
import pytest

from tests.support.chromium import CONTRASTS, Browser, find_chromium, open_browser
from tests.support.onnx_model import write_onnx_model
from tests.support.server import Server, png, running_server, wait_for

CHROMIUM = find_chromium()
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here; apt-get install chromium")
WIDE, PHONE = 1200, 400
CARDS = "[...document.querySelectorAll('#results > li')].map(each => each.innerText)"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("page")
    write_onnx_model(folder / "<b>model.onnx", classes=("cat", "<img src=x onerror=alert(1)>", "owl"))
    with running_server(folder, folder / "<b>model.onnx", "--quiet") as started:
        yield started
        started.send(signal.SIGTERM)
        started.process.wait(60)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert CHROMIUM is not None
    with open_browser(CHROMIUM, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("images")
    for name, content in (("red.png", png()), ("grey.png", png((128, 128, 128))), ("bad.png", b"no image")):
        (folder / name).write_bytes(content)
    return [folder / name for name in ("red.png", "grey.png", "bad.png")]


def open_page(browser: Browser, server: Server, width: int = WIDE, dark: bool = False) -> None:
    browser.show(f"{server.address}/", width, dark=dark)
    wait_for(lambda: "classes apart" in browser.evaluate("document.querySelector('#lead').innerText"), "the lead")


def cards(browser: Browser, count: int) -> list[str]:
    """The texts of the images' cards, the last image first, once all are answered."""
    wait_for(
        lambda: len(found := browser.evaluate(CARDS)) == count and not any("Waiting" in each for each in found), "cards"
    )
    found: list[str] = browser.evaluate(CARDS)
    return found


@needs_chromium
def test_a_person_drops_images_and_reads_verdict_reason_and_rate(
    browser: Browser, server: Server, images: list[Path]
) -> None:
    open_page(browser, server)
    browser.drop_files(300, 200, images)
    bad, grey, red = cards(browser, 3)
    assert "✓ Accepted" in red
    assert "owl" in red
    assert "99.7 %" in red
    assert "✕ Rejected: uncertain" in grey
    assert "threshold 0.3000" in grey
    assert re.search(r"Larger than for 9\d % of the 300 held-out images. Images beyond the mark, at 45 %", grey)
    assert "Not usable" in bad
    assert "It is not an image" in bad
    wait_for(
        lambda: (
            "1 of 2 images since the server began; 95 % promised"
            in browser.evaluate("document.querySelector('#state').innerText")
        ),
        "the rate",
    )
    assert "50.0 %" in browser.evaluate("document.querySelector('#rate').innerText")
    assert "No alarm" in browser.evaluate("document.querySelector('#facts').innerText")
    assert [each for each in browser.errors if "422" not in each] == [], "the browser notes the bad file's status"
    assert browser.evaluate("document.querySelectorAll('main b, main img[src=x]').length") <= 6, "names stay text"
    assert "<img src=x onerror=alert(1)>" in red


@needs_chromium
def test_the_field_for_files_takes_them_by_keyboard_and_a_screen_reader_hears_the_verdict(
    browser: Browser, server: Server, images: list[Path]
) -> None:
    open_page(browser, server)
    browser.press("Tab")
    assert browser.evaluate("document.activeElement.id") == "files"
    outline = "getComputedStyle(document.querySelector('#drop')).outlineStyle"
    assert browser.evaluate(outline) == "solid", "who tabs sees where they are"
    browser.choose_files("#files", images[:1])
    cards(browser, 1)
    assert browser.evaluate("document.querySelector('#said').innerText") == "red.png: owl, Accepted"
    tree = browser.call("Accessibility.getFullAXTree")["nodes"]
    spoken = {(node["role"]["value"], node.get("name", {}).get("value", "")) for node in tree if "role" in node}
    assert any(role == "button" and name.startswith("Choose images") for role, name in spoken)
    assert ("button", "Remove all") in spoken
    assert any(role == "status" for role, _ in spoken)
    browser.evaluate("document.querySelector('#clear').click()")
    assert browser.evaluate(CARDS) == []
    assert browser.evaluate("document.activeElement.id") == "files"


@needs_chromium
@pytest.mark.parametrize(("width", "dark"), [(WIDE, False), (PHONE, True)])
def test_nothing_is_wider_than_the_screen_and_all_text_has_contrast(
    browser: Browser, server: Server, images: list[Path], width: int, dark: bool
) -> None:
    open_page(browser, server, width, dark)
    browser.choose_files("#files", images)
    cards(browser, 3)
    browser.evaluate("document.querySelector('#more').open = true")
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    contrasts = browser.evaluate(CONTRASTS)
    assert len(contrasts) > 20
    assert [text for contrast, text in contrasts if contrast < 4.5] == [], "WCAG asks for 4.5 to 1"


@needs_chromium
def test_a_server_with_a_token_asks_for_it_on_the_page(browser: Browser, tmp_path: Path, images: list[Path]) -> None:
    write_onnx_model(tmp_path / "tiny.onnx")
    with running_server(tmp_path, tmp_path / "tiny.onnx", "--quiet", token="s3cret") as server:  # noqa: S106
        browser.show(f"{server.address}/", WIDE)
        wait_for(lambda: not browser.evaluate("document.querySelector('#tokens').hidden"), "the field for the token")
        browser.evaluate(
            "document.querySelector('#token').value = 's3cret'; document.querySelector('#tokens').requestSubmit()"
        )
        wait_for(lambda: "classes apart" in browser.evaluate("document.querySelector('#lead').innerText"), "the lead")
        browser.choose_files("#files", images[:1])
        assert "✓ Accepted" in cards(browser, 1)[0]


def test_the_page_loads_nothing_from_elsewhere_and_the_browser_is_told_so(server: Server) -> None:
    found = httpx.get(f"{server.address}/")
    policy = found.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    html = files("dsui.serving").joinpath("page.html").read_text(encoding="utf-8")
    assert not re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?(?!data:)(?:https?:)?//", html)
