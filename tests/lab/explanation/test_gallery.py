"""The commands, from a network to its pages."""

import dataclasses
from html.parser import HTMLParser

import pytest
import torch

from tests.lab.explanation.tiny import DISTINCT, TEXT, any_model, small
from torchcaps import models
from torchcaps.cli import main
from torchcaps.cli.compare import names_of
from torchcaps.cli.explain import TOPICS, write_gallery
from torchcaps.data import ArrayDataset
from torchcaps.lab.explanation import gallery
from torchcaps.lab.explanation.comparison import measure_all
from torchcaps.lab.explanation.gallery import ExplainedModel
from torchcaps.lab.loaders import ImageLoader
from torchcaps.lab.recipes.base import Transforms
from torchcaps.lab.reports.comparison_page import Compared, comparison_page, row_of
from torchcaps.losses import CrossEntropyLoss
from torchcaps.models import Model


def subject_of(model: Model, images: torch.Tensor, classes: int = 4) -> ExplainedModel:
    labels = torch.arange(len(images)) % classes
    dataset = ArrayDataset("noise", "test", tuple("abcdef"[:classes]), images, labels)
    return ExplainedModel(model, ImageLoader(dataset, Transforms()), CrossEntropyLoss(), "tiny", "noise/test", limit=3)


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if name in ("src", "href") and value]


def test_topics_are_the_same_everywhere() -> None:
    assert tuple(gallery.TOPICS) == TOPICS


def test_a_gallery_has_what_it_shows_and_says_what_it_has_not(tmp_path, capsys) -> None:
    net, images = small("sabour2017_mnist")
    page = write_gallery(subject_of(net, images), tmp_path, ("couplings", "viewpoint"))
    text = page.read_text()
    links = Links()
    links.feed(text)
    assert len(links.found) == 2 + 4 * 4  # contents; figures with three files
    assert all((tmp_path / link).is_file() for link in links.found if not link.startswith("#"))
    assert "says nothing about the azimuth" in text
    assert "viewpoint: left out" in capsys.readouterr().out
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("name", [name for name in DISTINCT if name.startswith(("cnn", "resnet"))][:1])
def test_networks_without_capsules_leave_out_what_needs_them(name: str, tmp_path) -> None:
    model, images = any_model(name)
    page = write_gallery(subject_of(model, images), tmp_path, ("couplings", "reconstruction", "iterations"))
    assert page.read_text().count("has no capsules") == 3


@pytest.mark.parametrize("name", [DISTINCT[0], "cnn_sabour2017_mnist"])
def test_standing_and_its_page(name: str) -> None:
    model, images = any_model(name)
    subject = subject_of(model, images)
    standing, robust = measure_all(
        model, subject.loader, subject.loss, name="<tiny>", data="noise/test", limit=None, robust_limit=2
    )
    assert robust is not None
    assert standing.total == len(images)
    assert standing.counts.sum() == len(images)
    assert standing.parameters == models.count_parameters(model)
    assert standing.mebibytes > 0
    assert standing.milliseconds > 0
    low, high = standing.interval
    assert low <= standing.accuracy <= high
    other = dataclasses.replace(standing, name="other")
    text = comparison_page([Compared(standing, robust), Compared(other, robust)])
    assert "&lt;tiny&gt;" in text
    assert "<tiny>" not in text
    links = Links()
    links.feed(text)
    inside = [link for link in links.found if not link.startswith("#")]
    assert all(link.startswith("data:image/svg+xml;base64,") for link in inside)
    assert len(inside) == 3
    assert "The difference is not larger than chance" in text
    assert "left out" in comparison_page([Compared(standing)]).lower()
    assert len(row_of(standing)) == 9


def test_runs_of_the_same_name_are_told_apart() -> None:
    assert names_of(["a/x", "b/y.safetensors"]) == ["x", "y"]
    assert names_of(["a/x", "b/x"]) == ["a/x", "b/x"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["explain", "nowhere"], "no such run folder"),
        (["explain", "nowhere", "--only", "colors"], "no topic 'colors'"),
        (["compare"], "name the runs"),
    ],
)
def test_wrong_commands_say_what_is_wrong(arguments: list[str], told: str, capsys) -> None:
    assert main(arguments) == 2
    assert told in capsys.readouterr().err


def test_both_commands_on_a_model_file(tmp_path, capsys) -> None:
    model = models.create("sabour2017_mnist", stem_channels=4, primary_caps=2)
    models.save(model, tmp_path / "tiny.safetensors")
    given = [str(tmp_path / "tiny.safetensors"), "--data", "mnist_sample"]
    assert main(["explain", *given, "--out", str(tmp_path / "out"), "--only", "reconstruction"]) == 0
    assert (tmp_path / "out" / "reconstructions.svg").is_file()
    page = tmp_path / "compare.html"
    assert main(["compare", *given, "--out", str(page), "--limit", "4", "--robust-limit", "2"]) == 0
    assert "mnist_sample" in page.read_text()
    assert "ms an image" in capsys.readouterr().out


def test_text_networks_show_tokens() -> None:
    model, states = any_model(TEXT[0])

    class States:
        classes = tuple("abc")

        def __len__(self) -> int:
            return len(states)

        def batch(self, indices, generator=None):
            from torchcaps.lab.loaders import ModelBatch

            label = indices % 3
            return ModelBatch((states[indices],), label, label)

    subject = ExplainedModel(model, States(), CrossEntropyLoss(), "tiny", "noise")
    [found] = gallery.draw_couplings(subject)
    assert found.name == "token-use"
    with pytest.raises(ValueError, match="no images"):
        list(gallery.draw_robustness(subject))
