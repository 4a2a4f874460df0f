"""Credit of texts: which tokens made the class, through all vector routings, on the page and by the command."""

from pathlib import Path
from typing import Any

import pytest
import torch

import torchcaps as tc
import torchcaps.lab.recipes as recipes
import torchcaps.lab.text as text
from torchcaps.cli import main
from torchcaps.lab.explanation.credit import CreditView, credit_shares
from torchcaps.lab.explanation.text import text_views
from torchcaps.lab.reports.credit_sections import credited_words
from torchcaps.lab.reports.text_page import text_page
from torchcaps.lab.training import train
from torchcaps.models import Model
from torchcaps.models.heinsen2022 import StatesRouting

SIZES: dict[str, Any] = {"depth": 3, "embedding": 8, "caps": 4, "classes": 2}


def make(**sizes: Any) -> StatesRouting:
    torch.manual_seed(0)
    model = tc.models.create("heinsen2022_sst2", **(SIZES | sizes))
    assert isinstance(model, StatesRouting)
    return model


@pytest.mark.parametrize("sizes", [{}, {"features": 5, "pose": 6}], ids=["wide", "small"])
def test_credit_is_that_of_all_layers(sizes: dict[str, int], encoder: text.Encoder) -> None:
    model = make(**sizes)
    hidden = encoder.encode(encoder.tokenize(["the film is great", "dull"]).ids)
    states, mask = hidden.states.clone(), hidden.mask.float()
    shares = credit_shares(model, states, mask)
    assert shares.shape == (2, 6, 3, 2)
    torch.testing.assert_close(shares.abs().sum((1, 2)), torch.ones(2, 2))
    assert not shares[1, 3:].any()
    vectors = model.features(states).flatten(1, 2)
    there = mask.repeat_interleave(3, 1)
    product = torch.eye(18).expand(2, -1, -1)
    for number, routing in enumerate(model.head.routings):
        routed = routing(vectors, None if number else there, return_credit=True)
        vectors, product = routed.vectors, product @ routed.credit
    expected = product / product.abs().sum(1, keepdim=True)
    torch.testing.assert_close(shares.flatten(1, 2), expected, rtol=1e-3, atol=1e-5)
    alone = credit_shares(model, states[1:, :3], mask[1:, :3])
    torch.testing.assert_close(alone, shares[1:, :3])


def test_a_network_without_credit() -> None:
    pooling = tc.models.create("attention_pooling", depth=3, embedding=8)
    with pytest.raises(ValueError, match="AttentionPooling gives no credit"):
        credit_shares(pooling, torch.zeros(1, 2, 3, 8), torch.ones(1, 2))


def view() -> CreditView:
    credit = torch.tensor([[[0.1, 0.0]], [[0.3, -0.2]], [[-0.5, 0.1]], [[0.1, 0.7]]])
    without = torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.95, 0.05]])
    pieces = (" <b>", " un", "kind", " bad")
    return CreditView(pieces, credit, {"no": 0.9, "yes": 0.1}, without=without)


def test_the_strongest_words_come_first() -> None:
    words = credited_words(view(), 0, "no")
    assert [(word.text, round(word.credit, 3)) for word in words] == [("unkind", -0.2), ("<b>", 0.1), ("bad", 0.1)]
    assert [round(word.change or 0.0, 3) for word in words] == [-0.5, 0.0, 0.05]


def test_the_page_has_two_colors_and_says_what_they_mean() -> None:
    shown = text_page([view()], "a run", ("no", "yes"))
    assert "a run: what made each class" in shown
    assert shown.count("<details") == 2, "credit of one class is not the mirror of the other's"
    assert shown.count("<details open") == 1
    assert 'rgb(var(--right) / 0.75)">credit above 0<' in shown
    assert 'rgb(var(--against) / 0.75)">credit below 0<' in shown
    assert 'style="background:rgb(var(--against) / 0.75)" title="−50.0 %">kind<' in shown
    assert 'style="background:rgb(var(--right) / 0.45)" title="+30.0 %">un<' in shown
    assert "Most credit of no: “&lt;b&gt;” (+10.0 %), “bad” (+10.0 %). Below 0: “unkind” (−20.0 %)." in shown
    assert "Masking “unkind” changes the probability of no most, by −50.00 points." in shown
    assert "<b>" not in shown[shown.index("<main>") :].replace("<b>no</b>", "").replace("<b>yes</b>", "")


def test_explain_and_predict_write_the_page(
    reviews: Path, encoder_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--data.train", str(reviews), "--data.test", "", "--data.val-size", "6", "--data.limit", "40"]
    words += ["--text.validation", "", "--text.text-column", "review", "--text.label-column", "liked"]
    words += ["--encoder", str(encoder_folder), "--text.folder", str(tmp_path / "kept"), "--epochs", "1"]
    recipe = text.fit_to_texts(recipes.configure("heinsen2022/sst5-small", "laptop", words))
    run = train(recipe, tmp_path / "run")
    model: Model = run.model()
    (seen,) = text_views(model, recipe, ["the film is great"])
    assert isinstance(seen, CreditView)
    assert seen.pieces == (" [CLS]", " the", " film", " is", " great", " [SEP]")
    assert seen.without is not None
    assert main(["explain", str(tmp_path / "run"), "--text", "the film is great"]) == 0
    shown = (tmp_path / "run" / "explain" / "texts.html").read_text()
    assert "heinsen2022/sst5-small: what made each class" in shown
    assert "http" not in shown
    assert main(["evaluate", str(tmp_path / "run")]) == 0, "texts of other lengths than the model was made for"
    page = tmp_path / "predicted.html"
    assert main(["predict", str(tmp_path / "run"), "--text", "a dull plot", "--html", str(page)]) == 0
    assert "Credit for <b>no</b>" in page.read_text()
    capsys.readouterr()
