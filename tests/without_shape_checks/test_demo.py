"""The page of ``torchcaps demo`` in a real Chromium: drawn on, scrubbed and turned, without a complaint."""

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

import torchcaps as tc
from tests.chromium import Browser, find_chromium
from tests.models import reduced
from torchcaps.cli import main
from torchcaps.data import DataError
from torchcaps.lab.demo import runtime, write_demo
from torchcaps.lab.demo.serving import address_of, make_server
from torchcaps.lab.evaluation.subjects import open_model
from torchcaps.models import Training

pytestmark = pytest.mark.skipif(
    not os.environ.get("TORCHCAPS_PLAIN"),
    reason="run with TORCHCAPS_PLAIN=1: exporters cannot see through shape checks",
)
Strokes = tuple[tuple[tuple[float, float], ...], ...]
ONE: Strokes = (((0.5, 0.2), (0.5, 0.5), (0.5, 0.8)),)
SEVEN: Strokes = (((0.3, 0.25), (0.5, 0.25), (0.7, 0.25), (0.6, 0.5), (0.5, 0.8)),)
PICTURE = "document.getElementById('{}').toDataURL()"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with three pages: digits, two digits, and a network without capsules."""
    try:
        files = runtime.find_runtime()
    except DataError as error:
        pytest.skip(f"no onnxruntime-web here: {error}")
    folder = tmp_path_factory.mktemp("pages")
    write_demo(open_model("shipped"), folder / "digits", files)
    names = tuple("abcd")
    two = Training(names, (2, 17, 19), {}, {"decision": "two_most_active", "reconstruction": 1.0})
    tc.models.save(reduced.model("sabour2017_mnist"), folder / "two.safetensors", two)
    write_demo(open_model(folder / "two.safetensors"), folder / "two", files)
    plain = Training(names, (1, 7, 9), {}, {"kind": "cross_entropy"})
    tc.models.save(reduced.model("cnn_sabour2017_mnist"), folder / "plain.safetensors", plain)
    write_demo(open_model(folder / "plain.safetensors"), folder / "plain", files)
    with make_server(folder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield address_of(server)
        server.shutdown()


@pytest.fixture(scope="module")
def browser(pages: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium is installed; set TORCHCAPS_CHROMIUM to one")
    with Browser(program, tmp_path_factory.mktemp("profile")) as found:
        found.resize(1280, 1400)
        yield found
        assert found.complaints == []
        assert [each for each in found.requests if not each.startswith((pages, "data:", "blob:"))] == []


def open_page(browser: Browser, address: str) -> None:
    browser.open(address)
    browser.wait("document.body !== null && 'ready' in document.body.dataset")
    settle(browser)


def settle(browser: Browser) -> None:
    """Until no prediction has been made for four frames."""
    frame = "await new Promise(requestAnimationFrame);"
    count = "document.body.dataset.predictions + ' ' + document.body.dataset.decoded"
    browser.wait(f"(async () => {{ const n = {count}; {4 * frame} return n === {count}; }})()")


def draw(browser: Browser, strokes: Strokes, *, finger: bool = False) -> None:
    browser.evaluate("document.getElementById('clear').click()")
    box = browser.evaluate("(({x, y, width, height}) => [x, y, width, height])(pad.getBoundingClientRect())")
    for stroke in strokes:
        places = [(box[0] + x * box[2], box[1] + y * box[3]) for x, y in stroke]
        if finger:
            browser.touch("touchStart", places[0])
            for place in places[1:]:
                browser.touch("touchMove", place)
            browser.touch("touchEnd")
        else:
            browser.mouse("mousePressed", *places[0])
            for place in places[1:]:
                browser.mouse("mouseMoved", *place)
            browser.mouse("mouseReleased", *places[-1])
    settle(browser)


def decided(browser: Browser) -> str:
    return browser.evaluate("document.getElementById('classes').dataset.decided")


def move(browser: Browser, slider: str, value: float) -> None:
    browser.evaluate(f"(({slider}).value = {value}, ({slider}).dispatchEvent(new Event('input')), true)")
    settle(browser)


def test_strokes_are_recognized_while_they_are_drawn(browser: Browser, pages: str) -> None:
    open_page(browser, f"{pages}digits/")
    before = browser.evaluate("Number(document.body.dataset.predictions)")
    for strokes, digit in ((ONE, "1"), (SEVEN, "7")):
        draw(browser, strokes)
        assert decided(browser) == digit
        assert browser.evaluate("pose.querySelector('h2').textContent") == f"The capsule of {digit}"
    assert browser.evaluate("Number(document.body.dataset.predictions)") > before + 4
    times = browser.evaluate("performance.getEntriesByName('pen to prediction').map((each) => each.duration)")[1:]
    middle = sorted(times)[len(times) // 2]
    print(f"pen to prediction: {middle:.0f} ms in the middle of {len(times)}, {max(times):.0f} ms at most")


def test_touch_and_keys_draw_too(browser: Browser, pages: str) -> None:
    open_page(browser, f"{pages}digits/")
    draw(browser, ONE, finger=True)
    assert decided(browser) == "1"
    browser.evaluate("document.getElementById('clear').click(); document.getElementById('pad').focus()")
    for key in [*["ArrowUp"] * 12, " ", *["ArrowDown"] * 24]:
        browser.press(key, " " if key == " " else "")
    settle(browser)
    assert decided(browser) == "1"
    browser.press("Delete")
    settle(browser)
    pixels = "[...seen.getContext('2d').getImageData(0, 0, 280, 280).data].filter((_, n) => n % 4 === 0)"
    assert browser.evaluate(f"Math.max(...{pixels})") < 60  # nothing but couplings of the dark


def test_every_slider_changes_the_picture_and_reset_restores_it(browser: Browser, pages: str) -> None:
    open_page(browser, f"{pages}digits/")
    draw(browser, SEVEN)
    own = browser.evaluate(PICTURE.format("reconstruction"))
    assert browser.evaluate("sliders.children.length") == 16
    seen = {own}
    for number in range(16):
        slider = f"sliders.children[{number}].querySelector('input')"
        move(
            browser,
            slider,
            browser.evaluate(f"Number({slider}.value) < 0 ? Number({slider}.max) : Number({slider}.min)"),
        )
        seen.add(browser.evaluate(PICTURE.format("reconstruction")))
    assert len(seen) == 17
    browser.evaluate("document.getElementById('reset').click()")
    browser.wait(f"{PICTURE.format('reconstruction')} === {own!r}")


def test_scrubbing_goes_through_the_iterations(browser: Browser, pages: str) -> None:
    open_page(browser, f"{pages}digits/")
    draw(browser, SEVEN)
    pictures = []
    for iteration in (1, 2, 3):
        move(browser, "document.getElementById('iteration')", iteration)
        assert browser.evaluate("document.getElementById('iteration-text').textContent") == f"{iteration} of 3"
        pictures.append(browser.evaluate(PICTURE.format("seen")))
    assert len(set(pictures)) == 3
    browser.evaluate("document.querySelectorAll('.class')[2].click()")  # another class gets other parts
    settle(browser)
    assert browser.evaluate(PICTURE.format("seen")) != pictures[2]
    assert browser.evaluate("document.querySelector('.class.first b').textContent") == "2"
    assert decided(browser) == "7"


def test_an_image_is_opened_and_made_bright_on_dark(browser: Browser, pages: str, tmp_path: Path) -> None:
    open_page(browser, f"{pages}digits/")
    photo = Image.new("RGB", (300, 200), "white")
    ImageDraw.Draw(photo).line([(150, 40), (150, 160)], fill="black", width=14)
    photo.save(tmp_path / "one.png")
    (tmp_path / "no.png").write_bytes(b"no image")
    node = browser.ask("DOM.getDocument")["root"]["nodeId"]
    field = browser.ask("DOM.querySelector", nodeId=node, selector="#file")["nodeId"]
    browser.ask("DOM.setFileInputFiles", nodeId=field, files=[str(tmp_path / "one.png")])
    browser.wait("document.getElementById('invert').checked")
    settle(browser)
    assert decided(browser) == "1"
    browser.ask("DOM.setFileInputFiles", nodeId=field, files=[str(tmp_path / "no.png")])
    browser.wait("document.getElementById('status').textContent.includes('no.png is no image')")


def test_two_digits_are_reconstructed_in_two_colors(browser: Browser, pages: str) -> None:
    open_page(browser, f"{pages}two/")
    draw(browser, ONE)
    assert len(decided(browser).split()) == 2
    note = browser.evaluate("document.getElementById('reconstruction-note').textContent")
    assert "(blue)" in note
    assert "(orange)" in note
    colors = "[...reconstruction.getContext('2d').getImageData(0, 0, 190, 170).data]"
    assert browser.evaluate(f"(d => d.some((value, n) => n % 4 === 0 && value !== d[n + 1]))({colors})")


def test_a_network_without_capsules_shows_what_there_is(browser: Browser, pages: str) -> None:
    open_page(browser, f"{pages}plain/")
    draw(browser, ONE)
    assert decided(browser) in "abcd"
    assert browser.evaluate("document.getElementById('pose').hidden && document.getElementById('scrub').hidden")
    assert "no capsules" in browser.evaluate("document.getElementById('presence-about').textContent")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits(browser: Browser, pages: str, width: int, scheme: str, tmp_path: Path) -> None:
    browser.prefer(scheme)
    browser.resize(width, 900, phone=width < 500)
    open_page(browser, f"{pages}digits/")
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    dark = browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 19, 25)"
    assert dark == (scheme == "dark")
    browser.resize(width, browser.evaluate("document.documentElement.scrollHeight"), phone=width < 500)
    browser.screenshot(Path(os.environ.get("TORCHCAPS_SCREENSHOTS", tmp_path)) / f"demo-{width}-{scheme}.png")
    browser.resize(1280, 1400)


def test_what_the_page_cannot_show_is_said(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    text = reduced.model("heinsen2019_sst5")
    tc.models.save(text, tmp_path / "text.safetensors")
    subject = open_model(tmp_path / "text.safetensors")
    large = replace(subject, model=reduced.model("comparison"))
    large.model.image = (1, 300, 300)
    for wrong, message in ((subject, "the page takes images"), (large, "the page shows networks for up to 256×256")):
        with pytest.raises(ValueError, match=message):
            write_demo(wrong, tmp_path / "page")
    assert not (tmp_path / "page").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").touch()
    for words, message in {
        ("demo", "model.onnx"): "give the run that this file comes from",
        ("demo", "nowhere"): "no such run folder or model file",
        ("demo", "shipped", "--port", "70000"): "a port is from 0 to 65535",
        ("demo", "shipped", "--out", str(tmp_path / "other")): "has other files in it",
    }.items():
        assert main(list(words)) == 2
        assert message in capsys.readouterr().err


def test_a_runtime_that_is_not_the_pinned_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "package.tgz").write_bytes(b"something else")
    with pytest.raises(DataError, match="its integrity is sha512-"):
        runtime.find_runtime(tmp_path / "package.tgz")
    with pytest.raises(DataError, match=r"does not hold ort\.wasm"):
        runtime.find_runtime(tmp_path)
    (tmp_path / "dist").mkdir()
    for name in runtime.SHA256:
        (tmp_path / "dist" / name).write_bytes(b"something else")
    with pytest.raises(DataError, match="is not the file of onnxruntime-web@"):
        runtime.find_runtime(tmp_path)
    monkeypatch.setattr(runtime, "cache_dir", lambda: tmp_path / "cache")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DataError, match="npm, which fetches it, is not installed; on any machine"):
        runtime.find_runtime()
    assert not (tmp_path / "cache").exists()
