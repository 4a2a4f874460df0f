"""Texts in two colors: blue for more, orange for less; as running text, as bars, and as a map of tokens and layers."""

from collections.abc import Callable, Sequence
from html import escape

from jaxtyping import Float
from torch import Tensor

from torchcaps.lab.explanation.credit import CreditView
from torchcaps.lab.explanation.text import TextView
from torchcaps.lab.reports.page import section

CELL, MARGIN, LETTER = 18, 78, 7  # of the map, in pixels: a cell, the names of the layers, a letter of a token
LONGEST = 14  # letters of a token that the map shows
NOTHING = 1e-6  # a share that is none
FOR, AGAINST = "--right", "--against"  # colors of the page
Say = Callable[[float], str]


def text_section(
    title: str, view: TextView | CreditView, classes: Sequence[str], block: Callable[[int, bool], str]
) -> str:
    """One text: what was predicted, how probable each class is, and a block for each class, the predicted one first;
    of two classes one is the mirror of the other."""
    said = max(view.probability, key=view.probability.__getitem__)
    about = f"Predicted: {said}, {view.probability[said]:.1%}." + (f" Labeled: {view.label}." if view.label else "")
    bars = "".join(
        f'<tr><td>{escape(name)}</td><td><i class="bar" style="width:{160 * share:.0f}px"></i></td>'
        f"<td class=n>{share:.1%}</td></tr>"
        for name, share in view.probability.items()
    )
    order = sorted(range(len(classes)), key=lambda place: classes[place] != said)
    if len(classes) == 2 and isinstance(view, TextView):
        order = order[:1]
    blocks = [block(place, place == order[0]) for place in order]
    return section(title, about, f'<div class="wide"><table class="bars">{bars}</table></div>', *blocks)


def bar(part: float) -> str:
    """A bar to the right for what is above 0, to the left for what is below; 1 is all of a side."""
    side, color = ("right", FOR) if part >= 0 else ("left", AGAINST)
    style = f"width:{50 * abs(part):.0f}%;background:{_color(color, 0.8)}"
    return f'<div class="diverging"><i class="{side}" style="{style}"></i></div>'


def name_layer(depth: int) -> str:
    """What a layer of the language model is called."""
    return "embedding" if depth == 0 else f"layer {depth}"


def mark_token(piece: str, value: float, reach: float, say: Say) -> str:
    """A token on its color, with its number under the pointer."""
    space = " " if piece.startswith(" ") else ""
    color = _color_of(value, max(reach, NOTHING))
    return f'{space}<span style="background:{color}" title="{say(value)}">{escape(piece.strip())}</span>'


def legend(more: str, less: str) -> str:
    """What the two colors mean."""
    marks = [
        f'<span style="background:{_color(color, 0.75)}">{escape(words)}</span>'
        for color, words in ((FOR, more), (AGAINST, less))
    ]
    return f'<p class="tokens key">{" ".join(marks)}</p>'


def token_map(pieces: Sequence[str], values: Float[Tensor, "token depth"], say: Say) -> str:
    """Tokens from left to right, layers from the bottom up, in the same colors."""
    tokens, depths = values.shape
    reach = max(float(values.abs().max()), NOTHING)
    names = [piece.strip()[:LONGEST] for piece in pieces]
    foot = 10 + LETTER * max(map(len, names))
    parts = []
    for depth in range(depths):
        top = CELL * (depths - 1 - depth)
        parts.append(f'<text x="{MARGIN - 6}" y="{top + 13}" text-anchor="end">{name_layer(depth)}</text>')
        for token, value in enumerate(values[:, depth].tolist()):
            parts.append(
                f'<rect x="{MARGIN + CELL * token}" y="{top}" width="{CELL - 1}" height="{CELL - 1}" '
                f'style="fill:{_color_of(value, reach)}"><title>{escape(names[token])}, {name_layer(depth)}: '
                f"{say(value)}</title></rect>"
            )
    for token, name in enumerate(names):
        x, y = MARGIN + CELL * token + 13, CELL * depths + 6
        parts.append(f'<text transform="translate({x} {y}) rotate(-90)" text-anchor="end">{escape(name)}</text>')
    width, height = MARGIN + CELL * tokens + 2, CELL * depths + foot
    size = f'viewBox="0 0 {width} {height}" style="width:{width}px"'
    return f'<div class="wide"><svg {size} role="img" aria-label="tokens and layers">{"".join(parts)}</svg></div>'


def _color_of(value: float, reach: float) -> str:
    return _color(FOR if value >= 0 else AGAINST, 0.75 * min(1.0, abs(value) / reach))


def _color(name: str, strength: float) -> str:
    return f"rgb(var({name}) / {strength:.2f})"
