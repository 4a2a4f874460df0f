"""The page of a run: whole, by itself, and honest about what it leaves out."""

import json
import re
import struct
import sys
import zlib
from html import unescape
from pathlib import Path

import numpy as np
import pytest
import torch

import torchcaps as tc
from tests.lab.evaluation.tiny_runs import tiny_recipe, tiny_run
from torchcaps.lab.recipes import change
from torchcaps.lab.reports import run_report
from torchcaps.lab.reports.charts import Curve, line_chart, thin, ticks
from torchcaps.lab.reports.page import STYLE, figure, heat, picture, pixels, png
from torchcaps.lab.reports.sections import command_of

TITLES = ("This run", "Learning curves", "Worst errors", "Reconstructions", "Confusion matrix", "Class by class")


def test_the_page_needs_nothing_but_itself(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "a <b> run")
    path = run_report(run)
    assert path == run.folder / "report.html"
    text = path.read_text(encoding="utf-8")
    for title in TITLES:
        assert f"<h2>{title}</h2>" in text
    assert "a &lt;b&gt; run" in text
    assert "<b> run" not in text
    sources = re.findall(r'(?:src|href)="([^"]{0,12})', text)
    assert sources
    assert all(source.startswith("data:image/") for source in sources)
    assert not re.search(r"https?://|@import|url\(", text)
    assert "12 s" in text
    assert not list(run.folder.glob("*.part"))


def test_the_command_that_made_it_can_be_read_back(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", "--seed", "3", "--data.limit", "50")
    assert command_of(run) == "torchcaps train quickstart --scale smoke --seed 3 --data.limit 50"
    assert f'<pre class="command">{command_of(run)}</pre>' in run_report(run).read_text(encoding="utf-8")


def test_charts_have_values_to_hover_over() -> None:
    chart = line_chart("Accuracy", "step", [Curve('a "b"', [(1.0, 0.5), (20.0, 0.25)])], share=True)
    (data,) = re.findall(r'data-values="([^"]*)"', chart)
    values = json.loads(unescape(data))
    assert values["across"] == "step"
    (curve,) = values["curves"]
    assert curve["name"] == 'a "b"'
    assert [point[1:] for point in curve["points"]] == [["1", "50.00 %"], ["20", "25.00 %"]]
    drawn = re.findall(r'cx="([\d.]+)"', chart)
    assert [point[0] for point in curve["points"]] == [float(x) for x in drawn]


def test_many_curves_have_a_legend_of_several_rows() -> None:
    curves = [Curve(f"a run with a long name {number}", [(0.0, 1.0), (1.0, 2.0)]) for number in range(8)]
    chart = line_chart("Loss", "step", curves)
    rows = {float(y) for y in re.findall(r'<rect class="\w+" x="[\d.]+" y="([\d.]+)"', chart)}
    assert len(rows) > 3
    (width, height) = re.findall(r'viewBox="0 0 (\d+) (\d+)"', chart)[0]
    assert int(height) > max(rows) + 200
    ends = [int(x) + 19 for x in re.findall(r'<rect class="\w+" x="(\d+)"', chart)]
    assert max(ends) < int(width)


def test_only_thumbnails_are_shown_as_pixels() -> None:
    """A style for enlarged images of 28 pixels makes figures unreadable; nothing is wider than a phone by itself."""
    style = STYLE.read_text(encoding="utf-8")
    rules = re.findall(r"([^{}]+)\{[^{}]*image-rendering: pixelated", style)
    assert [rule.strip().splitlines()[-1] for rule in rules] == ["img.pixels"]
    assert 'class="pixels"' in picture(torch.rand(1, 4, 4), "input")
    assert "pixels" not in figure("a.svg", "a figure", "")
    for least in re.findall(r"minmax\((.*?), 1fr\)", style):
        assert least.startswith("min(") or int(least.removesuffix("px")) < 300


def test_everything_opened_is_closed(tmp_path: Path) -> None:
    text = run_report(tiny_run(tmp_path / "run")).read_text(encoding="utf-8")
    for tag in ("section", "table", "tr", "td", "th", "figure", "svg", "div", "dl", "details", "main"):
        assert len(re.findall(rf"<{tag}[\s>]", text)) == text.count(f"</{tag}>"), tag


def test_couplings_and_dimensions_are_shown(tmp_path: Path) -> None:
    pytest.importorskip("torchcaps.lab.explanation.couplings")
    pytest.importorskip("torchcaps.lab.explanation.perturbation")
    text = run_report(tiny_run(tmp_path / "run")).read_text(encoding="utf-8")
    assert "Where the parts went: dynamic routing" in text
    assert "iteration 3" in text
    assert "covers the center of the image only" in text
    assert "Left out" not in text
    capsules = text.count('<div class="capsule"')
    assert capsules >= 1
    assert text.count('<input type="range" min="0" max="10" value="5"') == 4 * capsules  # numbers of the pose
    sheets = re.findall(r'alt="decoded" width="(\d+)" height="(\d+)"', text.partition("What the dimensions")[2])
    assert [tuple(map(int, size)) for size in sheets] == [(11 * 112, 4 * 112)] * capsules


def test_a_model_without_a_decoder_says_so(tmp_path: Path) -> None:
    text = run_report(tiny_run(tmp_path / "run", "--model.no-decoder")).read_text(encoding="utf-8")
    advice = "has no decoder; train with --model.decoder --loss.reconstruction"
    assert text.count(f"Left out: this sabour2017_mnist {advice}") == 2


def test_a_model_without_capsules_says_so(tmp_path: Path) -> None:
    config = tc.models.configure("cnn_sabour2017_mnist", widths=(3, 4, 5), hidden=(6, 7))
    recipe = change(tiny_recipe(), {"loss.kind": "cross_entropy", "loss.reconstruction": 0.0})
    plain = type(recipe)(**(vars(recipe) | {"model_name": "cnn_sabour2017_mnist", "model": config}))
    text = run_report(tiny_run(tmp_path / "run", recipe=plain)).read_text(encoding="utf-8")
    assert "Left out: this model has no capsules" in text
    assert "<h2>Confusion matrix</h2>" in text


def test_several_labels_have_no_confusion_matrix(tmp_path: Path) -> None:
    changes = {
        "data.train": "multimnist:mnist_sample",
        "model.image_size": 36,
        "transforms.pad": 0,
        "loss.decision": "two_most_active",
    }
    text = run_report(tiny_run(tmp_path / "run", recipe=change(tiny_recipe(), changes))).read_text(encoding="utf-8")
    assert "Left out: examples have several labels" in text
    assert re.search(r"label: \d \+ \d", text)


def test_without_matplotlib_the_tables_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("matplotlib", "torchcaps.lab.explanation."))]:
        package, _, part = name.rpartition(".")
        if hasattr(sys.modules.get(package), part):  # importing anew binds it anew: put it back afterwards
            monkeypatch.setattr(sys.modules[package], part, sys.modules[name])
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    text = run_report(tiny_run(tmp_path / "run")).read_text(encoding="utf-8")
    assert "pip install &#x27;torchcaps[lab]&#x27;" in text
    assert "<h2>Class by class</h2>" in text


def test_a_run_without_metrics_or_record_has_a_page(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run")
    (run.folder / "metrics.jsonl").unlink()
    (run.folder / "record.json").unlink()
    assert "has not written any metrics" in run_report(run, most_examples=5).read_text(encoding="utf-8")


def test_a_png_is_what_it_was_made_from() -> None:
    made = np.arange(2 * 5 * 3, dtype=np.uint8).reshape(2, 5, 3)
    data = png(made)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    start = data.index(b"IDAT")
    (length,) = struct.unpack(">I", data[start - 4 : start])
    lines = np.frombuffer(zlib.decompress(data[start + 4 : start + 4 + length]), np.uint8).reshape(
        height, 1 + 3 * width
    )
    assert np.array_equal(lines[:, 1:].reshape(2, 5, 3), made)


def test_pictures_of_any_channels() -> None:
    for channels, wide in ((1, 6), (2, 12), (3, 6)):
        image = torch.rand(channels, 4, 6)
        assert pixels(image).shape == (4, wide, 3)
        assert f'width="{wide * 10}" height="40"' in picture(image, 'a "picture"', 40)
    assert torch.allclose(heat(torch.zeros(1, 1)), torch.zeros(3, 1, 1))


def test_charts_cover_what_they_show() -> None:
    for low, high in ((0.0, 1.0), (0.02, 0.0201), (5.0, 5.0), (-3.0, 9000.0)):
        found = ticks(low, high)
        assert found[0] <= low
        assert found[-1] >= high
        assert 2 <= len(found) <= 9
    assert len(thin([(float(x), 1.0) for x in range(10_000)])) <= 400
    chart = line_chart("Loss & more", "step", [Curve("training", [(1.0, 0.5), (2.0, float("nan")), (3.0, 0.1)])])
    assert "Loss &amp; more" in chart
    assert "nan" not in chart
    assert "nothing was measured" in line_chart("Loss", "step", [Curve("training", [])])
