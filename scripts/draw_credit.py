"""Draw docs/images/vector-routing.png, the credit of a sentence's tokens: python scripts/draw_credit.py RUN

RUN is a trained ``heinsen2022/sst2-small`` (``torchcaps train heinsen2022/sst2-small --scale laptop``).
"""

import sys
from pathlib import Path

from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from torchcaps.lab.explanation.credit import CreditView
from torchcaps.lab.explanation.text import group_words, text_views
from torchcaps.lab.text import class_names
from torchcaps.lab.training import Run

TARGET = Path(__file__).resolve().parent.parent / "docs" / "images" / "vector-routing.png"
SENTENCE = "the plot is a mess and the jokes fall flat, but the two leads are wonderful"
BLUE, ORANGE = "#1f6feb", "#d9730d"


def draw(view: CreditView, names: tuple[str, ...]) -> Figure:
    """Credit of both classes as maps of tokens and layers, and what masking each word does."""
    said = max(view.probability, key=view.probability.__getitem__)
    order = sorted(range(len(names)), key=lambda place: names[place] != said)
    figure = Figure(figsize=(9.6, 4.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3, sharey=True, width_ratios=(1, 1, 1.1))
    colors = LinearSegmentedColormap.from_list("credit", (ORANGE, "#ffffff", BLUE))
    reach = float(view.credit.abs().max())
    picture = None
    for panel, place in zip((left, middle), order, strict=True):
        picture = panel.imshow(view.credit[..., place], cmap=colors, vmin=-reach, vmax=reach, aspect="auto")
        panel.set_title(f"credit for “{names[place]}”", fontsize=10)
        panel.set_xlabel("layer of MiniLM")
    left.set_yticks(range(len(view.pieces)), [piece.strip() for piece in view.pieces], fontsize=9)
    assert picture is not None
    figure.colorbar(
        picture, ax=middle, label="share of all credit", shrink=0.8, format=lambda x, _: f"{100 * x:+.0f} %"
    )
    assert view.without is not None
    changes = [100 * (float(row[order[0]]) - view.probability[said]) for row in view.without]
    for word, change in zip(group_words(view.pieces), changes, strict=True):
        place = sum(word) / len(word)
        right.barh(place, change, height=0.8 * len(word), color=BLUE if change < 0 else ORANGE)
    right.axvline(0, color="#888888", linewidth=0.8)
    right.set_title(f"“{said}” ({100 * view.probability[said]:.0f} %) without the word", fontsize=10)
    right.set_xlabel("change of probability, points")
    return figure


if __name__ == "__main__":
    run = Run.open(Path(sys.argv[1]))
    (seen,) = text_views(run.model(), run.recipe, [SENTENCE])
    assert isinstance(seen, CreditView)
    draw(seen, class_names(run.recipe)).savefig(TARGET, dpi=150)
    print(f"{TARGET} written")
