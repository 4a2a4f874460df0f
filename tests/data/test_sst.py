import pytest
import torch

from tests.data.written import put, zipped
from torchcaps import data
from torchcaps.data import DataError, TextDataset, sst

TREES = "(3 (2 A) (4 (3 lovely) (2 film)))\n\n(2 (2 -LRB-) (2 (2 film) (2 -RRB-)))\n(0 dull)\n"


def test_published_counts(real):
    real("sst/trees")
    counts = {"sst5": 1_101, "sst2": 872, "sst5_phrases": 24_772, "sst2_phrases": 11_395}
    assert {name: len(data.load(name, "dev")) for name in counts} == counts
    # The larger splits are parsed once: two classes are five without the neutral one.
    for split, sentences, polar, phrases, polar_phrases in (
        ("train", 8_544, 6_920, 159_274, 77_616),
        ("test", 2_210, 1_821, 46_663, 21_931),
    ):
        every = data.load("sst5_phrases", split)
        assert (len(every), int((every.labels != 2).sum())) == (phrases, polar_phrases)
        roots = [line for line in real(f"sst/trees/{split}.txt").read_text(encoding="utf-8").split("\n") if line]
        assert (len(roots), sum(line[1] != "2" for line in roots)) == (sentences, polar)
    assert len(data.load("sst2", "test")) == 1_821


def test_published_sentence(real):
    real("sst/trees")
    first = data.load("sst5", "dev")[0]
    assert " ".join(first.tokens) == "It 's a lovely film with lovely performances by Buy and Accorsi ."
    assert (int(first.label), int(first.metadata["length"])) == (3, 13)


def test_a_phrase_has_one_sentiment_in_each_split(real):
    real("sst/trees")
    for split in ("dev", "test"):
        seen: dict[str, int] = {}
        for line in (real(f"sst/trees/{split}.txt")).read_text(encoding="utf-8").split("\n"):
            for phrase, sentiment in sst.phrases(line.strip()) if line.strip() else ():
                assert seen.setdefault(phrase, sentiment) == sentiment


@pytest.mark.parametrize(
    ("classes", "unique", "expected"),
    [
        (5, False, [("A lovely film", 3), ("( film )", 2), ("dull", 0)]),
        (2, False, [("A lovely film", 1), ("dull", 0)]),
        (2, True, [("lovely", 1), ("lovely film", 1), ("A lovely film", 1), ("dull", 0)]),
    ],
)
@pytest.mark.parametrize("archive", [False, True])
def test_sentences_and_phrases(tmp_path, classes, unique, expected, archive):
    text = TREES.encode()
    path = put(tmp_path / "dev.zip", zipped({"trees/dev.txt": text})) if archive else put(tmp_path / "dev.txt", text)
    dataset = sst.read(path, "dev", name="sst", classes=classes, unique_phrases=unique)
    assert list(zip(dataset.sentences, dataset.labels.tolist(), strict=True)) == expected
    assert dataset.metadata["sentence"].tolist()[-1] == 3  # the line in the file, counted from 0


def test_every_phrase_once(tmp_path):
    dataset = sst.read(put(tmp_path / "dev.txt", TREES.encode()), "dev", name="sst", unique_phrases=True)
    assert sorted(dataset.sentences) == sorted(
        ["A", "lovely", "film", "lovely film", "A lovely film", "(", ")", "film )", "( film )", "dull"]
    )
    batch = dataset.batch(torch.tensor([4, 0]))
    assert batch.tokens == (("A", "lovely", "film"), ("A",))
    assert batch.metadata["length"].tolist() == [3, 1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("(3 (2 a) (2 b)", "1 brackets are not closed"),
        ("(3 (2 a)))", "line 1 is not a tree"),
        ("(7 a)", "sentiment 7"),
        ("(3 )", "sentiment 3 of 0 words"),
        ("(3 a) (3 b)", "line 1 is not a tree"),
        ("words alone", "not closed"),
        ("(x a)", "line 1 is not a tree"),
        ("\n\n", "holds no trees"),
        ("(2 " * 20_000, "60,000 characters"),
    ],
)
def test_what_is_not_a_tree(tmp_path, text, words):
    with pytest.raises(DataError, match=words):
        sst.read(put(tmp_path / "bad.txt", text.encode()), "dev", name="sst")


def test_other_files(tmp_path):
    with pytest.raises(DataError, match="not UTF-8"):
        sst.read(put(tmp_path / "bad.txt", b"(2 \xff)"), "dev", name="sst")
    with pytest.raises(DataError, match=r"holds no trees/dev\.txt"):
        sst.read(put(tmp_path / "bad.zip", zipped({"other": b""})), "dev", name="sst")
    put(tmp_path / "sst" / "trees" / "dev.txt", TREES.encode())
    with pytest.raises(DataError, match="is not the published 0e9336ae"):
        data.load("sst5", "dev", tmp_path)


def test_labels_must_fit():
    with pytest.raises(DataError, match="1 sentences but 2 labels"):
        TextDataset("x", "train", ("a",), ["one"], torch.tensor([0, 0]))
    with pytest.raises(IndexError, match="there is no index 1"):
        TextDataset("x", "train", ("a",), ["one"], torch.tensor([0]))[1]
