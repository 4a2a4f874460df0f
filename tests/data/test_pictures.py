"""The one reader of image files: pixels as a viewer shows them, and errors that say what would be right."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.data.written import png, put, random_bytes
from torchcaps.data import DataError
from torchcaps.data.pictures import UPRIGHT, PictureHeader, read_header, read_picture

GRAY = random_bytes(6, 9)
COLOR = random_bytes(6, 9, 3)


def saved(image: Image.Image, form: str, **options) -> bytes:
    file = io.BytesIO()
    image.save(file, format=form, **options)
    return file.getvalue()


@pytest.mark.parametrize("form", ["PNG", "BMP", "PPM", "TIFF", "GIF", "WEBP"])
@pytest.mark.parametrize("pixels", [GRAY, COLOR], ids=["gray", "color"])
def test_formats_without_loss(form, pixels):
    if form == "GIF" and pixels.ndim == 3:
        pixels = pixels // 64 * 64  # at most 256 colors
    data = saved(Image.fromarray(pixels), form, **({"lossless": True} if form == "WEBP" else {}))
    gray = pixels.ndim == 2 and form != "WEBP"  # which has no gray
    assert read_header(data, "x") == PictureHeader(6, 9, gray)
    expected = (
        pixels[None] if gray else (pixels if pixels.ndim == 3 else pixels[..., None].repeat(3, 2)).transpose(2, 0, 1)
    )
    np.testing.assert_array_equal(read_picture(data, "x", gray=gray), expected)


@pytest.mark.parametrize("form", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied(form, orientation):
    # 16 times as large, so that JPEG's blocks keep the colors apart.
    upright = Image.fromarray(np.array([[0, 80, 160], [255, 200, 40]], np.uint8).repeat(16, 0).repeat(16, 1))
    stored = upright
    if orientation > 1:  # undo what will be done; the turns by 90 degrees are each other's inverse
        undo = {"ROTATE_90": "ROTATE_270", "ROTATE_270": "ROTATE_90"}
        done: str = UPRIGHT[orientation - 2]
        stored = upright.transpose(Image.Transpose[undo.get(done, done)])
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = saved(stored, form, exif=exif)
    header = read_header(data, "x")
    assert (header.rows, header.columns, header.turned) == (32, 48, orientation > 1)
    found = read_picture(data, "x", gray=True)
    assert found.shape == (1, 32, 48)
    assert np.abs(found[0].astype(int) - np.asarray(upright)).mean() < 4


def test_orientation_of_a_png_behind_its_pixels():
    exif = Image.Exif()
    exif[0x0112] = 6
    data = saved(Image.fromarray(GRAY), "PNG", exif=exif)
    at, length = data.index(b"eXIf") - 4, int.from_bytes(data[data.index(b"eXIf") - 4 :][:4], "big")
    chunk, rest = data[at : at + 12 + length], data[:at] + data[at + 12 + length :]
    late = rest[:-12] + chunk + rest[-12:]
    np.testing.assert_array_equal(read_picture(late, "x", gray=True), read_picture(data, "x", gray=True))


@pytest.mark.parametrize("form", ["PNG", "TIFF", "PPM"])
def test_16_bits_are_scaled(form):
    deep = np.array([[0, 257, 32768, 65535]], np.uint16)
    # By hand, as the oldest Pillow that is promised reads such files but cannot write them.
    data = b"P5 4 1 65535\n" + deep.astype(">u2").tobytes() if form == "PPM" else saved(Image.fromarray(deep), form)
    assert read_header(data, "x").deep
    for gray in (True, False):
        found = read_picture(data, "x", gray=gray)
        np.testing.assert_allclose(found, np.broadcast_to(deep / 65535, found.shape), atol=1e-6)
    larger = read_picture(data, "x", gray=True, size=(2, 2))
    assert larger.dtype == np.float32
    assert larger.max() <= 1


def test_transparency_is_composed_on_white():
    color = np.zeros((1, 3, 4), np.uint8)
    color[..., 0], color[0, :, 3] = 255, (0, 51, 255)
    found = read_picture(png(color), "x", gray=False)
    np.testing.assert_array_equal(found[1, 0], [255, 204, 0])
    np.testing.assert_array_equal(found[0, 0], [255, 255, 255])
    gray = Image.fromarray(np.array([[[0, 0], [0, 255]]], np.uint8), "LA")
    assert read_header(saved(gray, "PNG"), "x") == PictureHeader(1, 2, True, transparent=True)
    np.testing.assert_array_equal(read_picture(saved(gray, "PNG"), "x", gray=True), [[[255, 0]]])
    palette = Image.fromarray(np.array([[0, 1]], np.uint8), "P")
    palette.putpalette([10, 20, 30, 40, 50, 60])
    for form in ("PNG", "GIF"):
        found = read_picture(saved(palette, form, transparency=1), "x", gray=False)
        np.testing.assert_array_equal(found[:, 0].T, [[10, 20, 30], [255, 255, 255]])


def test_floats_are_taken_from_0_to_1_and_else_refused(tmp_path):
    values = np.array([[0, 0.25, 1]], np.float32)
    np.testing.assert_array_equal(read_picture(saved(Image.fromarray(values), "TIFF"), "x", gray=True)[0], values)
    for wrong in (values * 300, values - 1, values * np.float32("nan")):
        with pytest.raises(DataError, match=r"x: floats from .* expected 8 or 16 bits, or floats from 0 to 1"):
            read_picture(saved(Image.fromarray(wrong), "TIFF"), "x", gray=True)
    with pytest.raises(DataError, match="whole numbers of 32 bits from 0 to 70000"):
        read_picture(saved(Image.fromarray(np.array([[0, 70000]], np.int32)), "TIFF"), "x", gray=True)


def test_the_first_of_several_frames():
    frames = [Image.fromarray(np.full((4, 4), value, np.uint8)) for value in (10, 200)]
    for form in ("GIF", "TIFF"):
        data = saved(frames[0], form, save_all=True, append_images=frames[1:])
        assert read_header(data, "x").frames
        assert set(read_picture(data, "x", gray=True).ravel()) == {10}


def test_the_middle_is_resized():
    pixels = np.zeros((40, 80), np.uint8)
    pixels[:, 20:60] = 200
    for form in ("PNG", "JPEG"):
        found = read_picture(png(pixels, form), "x", gray=True, size=(10, 10))
        assert found.shape == (1, 10, 10)
        assert np.abs(found[0, :, 1:9].astype(int) - 200).max() <= 2
    assert read_picture(png(pixels), "x", gray=False, size=(4, 8)).shape == (3, 4, 8)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "an empty file"),
        (
            b"<svg xmlns='...'></svg>",
            r"not an image that can be read \(it begins with '<svg xml'\); expected PNG, JPEG",
        ),
        (b"\0\0\0\x18ftypheic\0\0\0\0", "of the kind 'heic'"),
        (b"hello, \x1b[2J world", r"it begins with 68 65 6c 6c 6f 2c 20 1b"),
        (png(GRAY)[:20], "not a whole image"),
        (png(GRAY)[:-30], "not a whole image"),
    ],
)
def test_what_is_no_image_is_named_without_internals(tmp_path: Path, content, words):
    path = put(tmp_path / "x.png", content)
    with pytest.raises(DataError, match=words) as caught:
        read_picture(path, str(path), gray=True)
    assert str(caught.value).startswith(str(path))
    assert "object at" not in str(caught.value)
    assert "_Measured" not in str(caught.value)


def test_folders_and_absent_files(tmp_path: Path):
    with pytest.raises(DataError, match=r"is a folder; name image files, such as .*/\*\.png"):
        read_picture(tmp_path, str(tmp_path), gray=True)
    with pytest.raises(DataError, match="no such file"):
        read_header(tmp_path / "none.png", "none.png")


def test_too_many_pixels_are_refused_by_the_header(monkeypatch):
    monkeypatch.setattr("torchcaps.data.pictures.MAX_PIXELS", 50)
    with pytest.raises(DataError, match=r"9×6 pixels; at most .* make it smaller"):
        read_header(png(GRAY), "x")
