"""Measure how far the credit of vector routings goes together with the effect of masking; and write the table.

    torchcaps train heinsen2022/sst2-small --scale laptop --out RUN
    python reproduction/measure_credit.py RUN       # on validation sentences; writes records/language/credit.json
    python reproduction/measure_credit.py           # the table of docs/language.md from the record

For each sentence: the rank correlation, over its words, of what the predicted class credits a word with and of what
masking the word takes from the probability of that class.
"""

import argparse
import json
import math
import statistics
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from torchcaps.files import write_json, write_text

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "reproduction" / "records" / "language" / "credit.json"
PAGE = ROOT / "docs" / "language.md"
BEGIN, END = "<!-- credit: written from the results -->\n", "<!-- end of credit -->\n"
SENTENCES, FEWEST_WORDS = 300, 4
OWN, DIFFERENCE, SIZE = "credit of the predicted class", "its credit less that of the other class", "both without signs"


def measure(folder: Path) -> None:
    from torchcaps.data import TextDataset
    from torchcaps.lab.explanation.credit import CreditView
    from torchcaps.lab.explanation.text import group_words, text_views
    from torchcaps.lab.text import class_names
    from torchcaps.lab.training import Run

    run = Run.open(folder)
    known, names = run.examples("val"), class_names(run.recipe)
    assert isinstance(known, TextDataset)
    texts = [known.sentences[number * len(known) // SENTENCES] for number in range(SENTENCES)]
    found: dict[str, list[float]] = {OWN: [], DIFFERENCE: [], SIZE: []}
    for view in text_views(run.model(), run.recipe, texts):
        assert isinstance(view, CreditView)
        assert view.without is not None
        words = group_words(view.pieces)
        if len(words) < FEWEST_WORDS:
            continue
        said = max(view.probability, key=view.probability.__getitem__)
        place = names.index(said)
        credit = torch.stack([view.credit[word].sum((0, 1)) for word in words])
        own, effect = credit[:, place], view.probability[said] - view.without[:, place]
        found[OWN].append(correlate_ranks(own, effect))
        found[DIFFERENCE].append(correlate_ranks(2 * own - credit.sum(1), effect))
        found[SIZE].append(correlate_ranks(own.abs(), effect.abs()))
    rows = {name: {"mean": statistics.mean(each), "error": _standard_error(each)} for name, each in found.items()}
    count = len(found[OWN])
    write_json(RECORD, {"recipe": run.recipe.name, "seed": run.recipe.seed, "sentences": count, "rows": rows}, indent=1)


def correlate_ranks(one: Float[Tensor, "word"], other: Float[Tensor, "word"]) -> float:
    """Spearman's correlation.

    >>> round(correlate_ranks(torch.tensor([1.0, 5.0, 3.0]), torch.tensor([0.1, 0.9, 0.2])), 6)
    1.0
    """
    ranks = torch.stack([each.argsort().argsort().double() for each in (one, other)])
    return float(torch.corrcoef(ranks)[0, 1])


def _standard_error(values: list[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values))


def table() -> str:
    record = json.loads(RECORD.read_text())
    lines = ["| compared with the effect of masking | rank correlation | 95 % over sentences |", "|---|---|---|"]
    for name, row in record["rows"].items():
        low, high = row["mean"] - 1.96 * row["error"], row["mean"] + 1.96 * row["error"]
        lines.append(f"| {name} | {row['mean']:.2f} | {low:.2f}–{high:.2f} |")
    said = f"`{record['recipe']}`, seed {record['seed']}, {record['sentences']} validation sentences."
    return "\n".join([*lines, "", said]) + "\n"


def page(text: str) -> str:
    """The page with its table made anew."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + table() + END + rest.split(END)[1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", type=Path)
    options = parser.parse_args()
    if options.run is not None:
        measure(options.run)
    write_text(PAGE, page(PAGE.read_text()))
