"""From a file to a trained network, to what it says of a text, to the page that shows why."""

import os
from pathlib import Path

import pytest
import torch
from rich.console import Console

import torchcaps as tc
from torchcaps.cli import main
from torchcaps.data import data_dir
from torchcaps.lab import recipes, text
from torchcaps.lab.explanation.text import TextView, mask_words, text_views, used_shares
from torchcaps.lab.recipes import AnyRecipe
from torchcaps.lab.reports.text_page import strongest_words, text_page
from torchcaps.lab.text import baselines, tasks
from torchcaps.lab.training import Run, train

SMALL = ["--model.features", "8", "--model.caps", "6", "--epochs", "12", "--batch-size", "8"]


def configured(reviews: Path, encoder_folder: Path, *more: str) -> AnyRecipe:
    words = ["--data", str(reviews), "--text-column", "review", "--label-column", "liked", *SMALL]
    words += ["--encoder", str(encoder_folder), "--text.folder", str(reviews.parent / "kept"), *more]
    return recipes.configure("text", "laptop", words)


def test_a_file_is_divided_once_and_for_all(reviews: Path, encoder_folder: Path) -> None:
    recipe = configured(reviews, encoder_folder, "--data.val-size", "6")
    parts = {split: text.examples(recipe, split) for split in ("train", "val", "test")}
    assert [len(part) for part in parts.values()] == [42, 6, 12]
    shuffled = reviews.parent / "shuffled.csv"
    header, *rows = reviews.read_text().splitlines()
    shuffled.write_text("\n".join([header, *reversed(rows)]) + "\n")
    again = configured(shuffled, encoder_folder, "--data.val-size", "6")
    for split, part in parts.items():
        assert sorted(text.examples(again, split).sentences) == sorted(part.sentences)  # pyright: ignore


def test_limits(reviews: Path, encoder_folder: Path) -> None:
    recipe = configured(reviews, encoder_folder, "--data.limit", "10", "--data.test-limit", "5")
    assert len(text.examples(recipe, "train")) == 10
    assert len(text.examples(recipe, "test")) == 5
    with pytest.raises(ValueError, match="has no validation examples"):
        text.examples(recipe, "val")
    with pytest.raises(ValueError, match=r"data.val_size=48 of 48 examples"):
        text.examples(configured(reviews, encoder_folder, "--data.val-size", "48"), "train")
    with pytest.raises(ValueError, match="a limit of 0 examples"):
        text.examples(configured(reviews, encoder_folder, "--data.limit", "0"), "train")


def test_the_model_fits_encoder_and_classes(reviews: Path, encoder_folder: Path) -> None:
    said: list[str] = []
    fitted = text.fit_to_texts(configured(reviews, encoder_folder), said.append)
    assert (fitted.model.depth, fitted.model.embedding, fitted.model.classes) == (3, 8, 2)
    assert fitted.text.classes == ("no", "yes")
    assert "model.depth 7 → 3" in said[0]


@pytest.fixture(scope="module")
def run(encoder_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("run")
    reviews = folder / "reviews.csv"
    words = (("bad", "dull", "awful"), ("good", "great", "fine"))
    rows = [
        f"the film is {words[n % 2][n // 2 % 3]} {'of a plot ' * (n // 6 % 3)},{('no', 'yes')[n % 2]}"
        for n in range(90)
    ]
    reviews.write_text("review,liked\n" + "\n".join(rows) + "\n")
    # A language model of random weights knows no synonyms: the test is whether what was read is remembered.
    more = ["--data.test", str(reviews), "--optimizer.lr", "0.03", "--transforms.mixup", "0"]
    recipe = text.fit_to_texts(configured(reviews, encoder_folder, *more))
    with (folder / "log").open("w") as log:
        return train(recipe, folder / "run", console=Console(file=log, width=300))


def test_progress_counts_texts(run: Run) -> None:
    said = (run.folder.parent / "log").read_text()
    assert "images" not in said
    assert "balanced accuracy" in said


def test_a_network_learns_to_read(run: Run) -> None:
    record = run.record()
    assert record is not None
    assert record["metrics"]["accuracy"] > 0.9
    found = text.predict(run, ["the film is great", "the film is awful of a plot"])
    assert [each.label for each in found] == ["yes", "no"]
    assert sum(found[0].probability.values()) == pytest.approx(1.0)


def test_predict_command(run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    place = tmp_path / "page.html"
    assert main(["predict", str(run.folder), "--text", "the film is great", "very " * 30, "--html", str(place)]) == 0
    heard = capsys.readouterr()
    assert heard.out.splitlines()[0].startswith("'the film is great': yes   (yes ")
    assert "1 texts are longer than the 12 tokens" in heard.err
    assert "What <b>yes</b> used more or less of than no" in place.read_text()
    assert main(["predict", str(run.folder), "--text", " "]) == 2
    assert "text 1 of 1 is empty" in capsys.readouterr().err
    assert main(["predict", str(run.folder), "picture.png"]) == 2
    assert "was trained on texts" in capsys.readouterr().err


def test_explain_command(run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["explain", str(run.folder), "--out", str(tmp_path / "seen")]
    assert main([*words, "--text", "the film is great", "dull " * 30]) == 0
    heard = capsys.readouterr().out
    assert "1 texts are longer than the 12 tokens" in heard
    assert heard.endswith(f"open {tmp_path / 'seen' / 'texts.html'}\n")
    shown = (tmp_path / "seen" / "texts.html").read_text()
    assert shown.count("<section") == 2
    assert shown.count("<svg") == 2
    assert "Labeled" not in shown
    assert main([*words, "--text", "fine", "  "]) == 2
    assert "text 2 of 2 is empty" in capsys.readouterr().err
    assert main(["explain", "shipped", "--text", "a film"]) == 2
    assert "no run that was trained on texts" in capsys.readouterr().err


def test_explain_command_shows_texts_of_the_data(run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["explain", str(run.folder), "--out", str(tmp_path), "--limit", "6"]) == 0
    assert f"texts: {tmp_path / 'texts.html'}" in capsys.readouterr().out
    shown = (tmp_path / "texts.html").read_text()
    assert shown.count("<section") == 6
    assert shown.count("Labeled: ") == 6


def test_train_command(
    reviews: Path,
    encoder_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)  # where its record goes
    words = ["train", "text", "--scale", "smoke", "--data", str(reviews), "--encoder", str(encoder_folder)]
    words += ["--out", str(tmp_path / "run"), "--no-report"]
    assert main([*words, "--text-column", "review", "--label-column", "liked"]) == 0
    assert Run.open(tmp_path / "run").recipe.text.classes == ("no", "yes")
    capsys.readouterr()
    assert main(words) == 2
    assert "no column 'text'; its header has 'review', 'liked'" in capsys.readouterr().err


def test_shares_that_are_used_add_up(run: Run, encoder: text.Encoder) -> None:
    """A child gives away all of itself, and a part as much as it is there."""
    ids = encoder.tokenize(["the film is great", "dull"]).ids
    hidden = encoder.encode(ids)
    model = run.model()
    used = used_shares(model, hidden.states.clone(), hidden.mask.float())
    assert used.shape == (2, 6, 3, 2)
    assert bool((used >= 0).all())
    assert float(used.sum(-1).max()) <= 1 + 1e-5
    assert bool((used[1, 3:] == 0).all())
    pooling = tc.models.create("attention_pooling", depth=3, embedding=8)
    with pytest.raises(ValueError, match="AttentionPooling routes no tokens"):
        used_shares(pooling, hidden.states, hidden.mask.float())


def test_the_page_shows_texts_as_they_are(run: Run) -> None:
    views = text_views(run.model(), run.recipe, ["the film is great"])
    assert views[0].pieces == (" [CLS]", " the", " film", " is", " great", " [SEP]")
    shown = text_page(views, "a <title>", ("no", "yes"))
    assert "a &lt;title&gt;" in shown
    assert (
        shown.count("<details") == shown.count("<details open") == 1
    )  # of two classes, one is the mirror of the other
    assert shown.count(">great</span>") == 1
    assert "http" not in shown
    strange = TextView((" <script>alert",), torch.full((1, 1, 2), 0.5), {"no": 0.5, "yes": 0.5})
    assert "<script>alert" not in text_page([strange], "x", ("no", "yes"))


def test_the_strongest_words_come_first() -> None:
    """What one class uses more of than the other, beyond what it uses more of everything."""
    used = torch.tensor([[[0.5, 0.4]], [[0.9, 0.9]], [[0.2, 0.4]], [[0.3, 0.2]], [[0.6, 0.1]]])
    pieces, chance = (" good", " both", " bad", " un", "kind"), {"no": 0.9, "yes": 0.1}
    for offset in (0.0, 0.05):  # of the whole text
        moved = used + torch.tensor([offset - 0.1, 0.0])
        without = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.95, 0.05], [0.4, 0.6]])
        view = TextView(pieces, moved, chance, without=without)
        words = strongest_words(view, 0, "no")
        assert [word.text for word in words] == ["bad", "unkind", "both", "good"]
        assert [round(word.stands_out, 3) for word in words] == [-0.3, 0.2, -0.1, 0.0]
        assert [round(word.change or 0.0, 3) for word in words] == [0.05, -0.5, 0.0, 0.0]
    shown = text_page([view], "x", ("no", "yes"))
    assert "no used 45.0% of a token on average, yes 40.0%." in shown
    assert (
        "no used more of “unkind” (+20.00 points). Beyond that, no used less of “bad” (−30.00 points), “both”" in shown
    )
    assert "Masking “unkind” changes the probability of no most, by −50.00 points." in shown
    assert 'rgb(var(--against) / 0.56)" title="−30.00 points">bad' in shown
    same = TextView((" a",), torch.full((1, 1, 2), 0.5), {"no": 0.5, "yes": 0.5})
    alone = text_page([same], "x", ("no", "yes"))
    assert "Beyond that" not in alone
    assert "Masking" not in alone


def test_masked_words_are_absent(run: Run, encoder: text.Encoder) -> None:
    """The last word masked is the text that ends before it, as far as the capsules see."""
    hidden = encoder.encode(encoder.tokenize(["the film is great"]).ids)
    found = mask_words(
        run.model(), hidden.states, hidden.mask.float(), (" [CLS]", " the", " film", " is", " great", "x")
    )
    assert found.shape == (5, 2)
    shorter = run.model()(hidden.states[:, :4].clone(), hidden.mask[:, :4].float()).logits
    torch.testing.assert_close(found[-1:], shorter)


def test_a_class_stands_against_the_mean_of_the_others() -> None:
    used = torch.tensor([[[0.6, 0.2, 0.1]]])
    view = TextView((" word",), used, {"a": 0.6, "b": 0.3, "c": 0.1})
    assert view.difference(0).item() == pytest.approx(0.45)
    assert sum(view.difference(place).item() for place in range(3)) == pytest.approx(0.0, abs=1e-6)
    shown = text_page([view], "x", ("a", "b", "c"))
    assert shown.count("<details") == 3
    assert shown.count("<details open") == 1


def test_the_map_has_layers_from_the_bottom_up() -> None:
    used = torch.tensor([[[0.5, 0.5], [0.9, 0.1]], [[0.5, 0.5], [0.1, 0.9]]])  # two tokens, two depths, two classes
    shown = text_page([TextView((" one", "<b>"), used, {"no": 0.9, "yes": 0.1})], "x", ("no", "yes"))
    svg = shown[shown.index("<svg") : shown.index("</svg>")]
    assert svg.count("<rect") == 2 * 2
    assert (
        'x="78" y="0" width="17" height="17" style="fill:rgb(var(--right) / 0.75)"><title>one, layer 1: +80.00' in svg
    )
    assert 'y="0" width="17" height="17" style="fill:rgb(var(--against) / 0.75)"><title>&lt;b&gt;, layer 1: −80' in svg
    assert 'x="78" y="18" width="17" height="17" style="fill:rgb(var(--right) / 0.00)"><title>one, embedding' in svg


def test_logistic_regression_finds_what_separates() -> None:
    torch.manual_seed(0)
    label = torch.arange(200) % 3
    features = torch.randn(200, 5).double()
    features[:, :3] += 3.0 * torch.nn.functional.one_hot(label, 3)
    train, val = (features[:150], label[:150]), (features[150:], label[150:])
    found = baselines.best_logistic(train, val, 3)
    assert found.correct(*val) > 42
    heavy, light = (baselines.fit_logistic(*train, 3, penalty) for penalty in (1.0, 1e-3))
    assert heavy.weight.norm() < light.weight.norm()


def test_sentences_come_before_phrases() -> None:
    if not os.environ.get("TORCHCAPS_DATA") or not (data_dir() / "sst").is_dir():
        pytest.skip("the Stanford Sentiment Treebank is not in TORCHCAPS_DATA")
    recipe = recipes.configure("heinsen2019/sst5", "laptop", ["--data.limit", "9000"])
    whole = set(tasks.examples_of(recipe, "sst5", "train").sentences)
    chosen = text.examples(recipe, "train").sentences
    assert len(chosen) == 9000
    assert whole <= set(chosen)
    assert len(text.examples(recipe, "val")) == 1101
    assert len(text.examples(recipe, "test")) == 2210
