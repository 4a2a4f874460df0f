"""Stanford Sentiment Treebank: 11,855 sentences as trees whose every phrase has a sentiment from 0 to 4.

Four datasets from the same three files: root sentences or all unique phrases, with five classes (SST-5) or with two and
the neutral ones removed (SST-2). Socher et al., "Recursive Deep Models for Semantic Compositionality" (EMNLP 2013).
"""

import re
from collections.abc import Iterator
from pathlib import Path

import torch

from torchcaps.data.archives import members
from torchcaps.data.base import DataError
from torchcaps.data.catalog import DatasetEntry, DownloadSource, RemoteFile, verify_published
from torchcaps.data.files import first_of, missing, opened, read_exactly
from torchcaps.data.text import TextDataset

ARCHIVE = "trainDevTestTrees_PTB.zip"
LIMIT = 16 << 20  # above the 3 MB of all trees
FIVE = ("very negative", "negative", "neutral", "positive", "very positive")
TWO = ("negative", "positive")
BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
NODE = re.compile(r" *(?:\((\d) |\)|([^() ]+))")  # a node's start, its end, or a word
LONGEST = 16_384  # characters of a line; phrases of a deep tree add up to the square of its words

SUMS = {
    "trees/train.txt": "e2f3f41b0b1e6d4dddc0effe3bfc2d27ed8928079aa9a03d652311614fc5feb7",
    "trees/dev.txt": "0e9336aed6e4730e19f58d00a77b3f0297efdb755f7b5e598c98a05e3f97ea40",
    "trees/test.txt": "6e54806dee95cf80cd918e7dfb3f6770f6df24bf826f289a4d1f709e1c8f6761",
}


def word(token: str) -> str:
    """A word of the treebank as people write it.

    >>> word("-LRB-"), word("and\\\\/or")
    ('(', 'and/or')
    """
    return BRACKETS.get(token, token).replace("\\/", "/").replace("\\*", "*")


def phrases(line: str) -> Iterator[tuple[str, int]]:
    """Every phrase of one tree with its sentiment, children before parents, so that the sentence comes last.

    >>> list(phrases("(3 (2 a) (4 gem))"))
    [('a', 2), ('gem', 4), ('a gem', 3)]
    """
    words: list[str] = []
    open_nodes: list[tuple[int, int]] = []  # sentiment, and the number of words before it
    position, closed = 0, False
    while position < len(line):
        match = NODE.match(line, position)
        if match is None or closed:
            raise ValueError(f"{line[position : position + 20]!r} at character {position}")
        position = match.end()
        if match[1] is not None:
            open_nodes.append((int(match[1]), len(words)))
        elif match[2] is not None:
            words.append(word(match[2]))
        else:
            if not open_nodes:
                raise ValueError(f"a bracket too many at character {position}")
            sentiment, start = open_nodes.pop()
            if sentiment > 4 or start == len(words):
                raise ValueError(f"sentiment {sentiment} of {len(words) - start} words before character {position}")
            yield " ".join(words[start:]), sentiment
            closed = not open_nodes
    if not closed:
        raise ValueError(f"{len(open_nodes)} brackets are not closed")


def read(path: Path, split: str, *, name: str, classes: int = 5, unique_phrases: bool = False) -> TextDataset:
    """A file of trees, one in a line: its sentences, or its phrases, each once and in order of appearance."""
    found: list[tuple[str, int, int]] = []
    seen: set[str] = set()
    for number, line in enumerate(_text(path, split).split("\n")):
        if not line.strip():
            continue
        if len(line) > LONGEST:
            raise DataError(f"{path}: line {number + 1} has {len(line):,} characters; a tree has at most {LONGEST:,}")
        try:
            parts = list(phrases(line.strip()))
        except ValueError as error:
            raise DataError(f"{path}: line {number + 1} is not a tree ({error}); fetch it again") from error
        for phrase, sentiment in parts if unique_phrases else parts[-1:]:
            if unique_phrases and phrase in seen:
                continue
            seen.add(phrase)
            found.append((phrase, sentiment, number))
    if classes == 2:
        found = [(phrase, int(sentiment > 2), number) for phrase, sentiment, number in found if sentiment != 2]
    if not found:
        raise DataError(f"{path}: holds no trees; fetch it again")
    labels = torch.tensor([sentiment for _, sentiment, _ in found])
    metadata = {"sentence": torch.tensor([number for _, _, number in found])}
    texts = [phrase for phrase, _, _ in found]
    return TextDataset(name, split, FIVE if classes == 5 else TWO, texts, labels, metadata)


def _text(path: Path, split: str) -> str:
    data = None
    if path.suffix == ".zip":
        for member in members(path, LIMIT):
            if member.name == f"trees/{split}.txt":
                data = read_exactly(member.stream, member.size, path, member.name)
        if data is None:
            raise DataError(f"{path}: holds no trees/{split}.txt; it is not the published archive")
    else:
        with opened(path, LIMIT) as stream:
            data = stream.read()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text ({error}); fetch it again") from error


def locate(split: str, root: Path) -> tuple[Path, ...]:
    path = first_of((root / "sst",), (f"trees/{split}.txt", ARCHIVE))
    if path is None:
        raise missing("sst5", split, f"trees/{split}.txt or {ARCHIVE}", root / "sst")
    return (path,)


SOURCE = DownloadSource(
    "sst",
    (
        RemoteFile(
            ARCHIVE,
            (f"https://nlp.stanford.edu/sentiment/{ARCHIVE}",),
            789_539,
            "5c613a4f673fc74097d523a2c83f38e0cc462984d847b82c7aaf36b01cbbbfcc",
            yields=tuple(SUMS),
            unpacked_limit=LIMIT,
        ),
    ),
    locate,
    SUMS,
)


def _entry(name: str, about: str, classes: int, unique_phrases: bool, *counts: int) -> DatasetEntry:
    def load(split: str, root: Path) -> TextDataset:
        (path,) = locate(split, root)
        verify_published(path, root / "sst", SOURCE.sums, name)
        return read(path, split, name=name, classes=classes, unique_phrases=unique_phrases)

    train, dev, test = counts
    sizes = {"train": train, "dev": dev, "test": test}
    return DatasetEntry(about, load, sizes, "research use; cite Socher et al. 2013", SOURCE, text=True)


SST5 = _entry("sst5", "film reviews, five sentiments", 5, False, 8_544, 1_101, 2_210)
SST2 = _entry("sst2", "film reviews, negative or positive", 2, False, 6_920, 872, 1_821)
SST5_PHRASES = _entry("sst5_phrases", "unique phrases of sst5, five sentiments", 5, True, 159_274, 24_772, 46_663)
SST2_PHRASES = _entry("sst2_phrases", "unique phrases of sst2, two sentiments", 2, True, 77_616, 11_395, 21_931)
