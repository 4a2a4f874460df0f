"""A page that shows the difference between classes in a text: what one capsule used more of than the others did.

No files besides: the page can be sent to someone as it is.
"""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from torchcaps.lab.explanation.text import TextView, group_words
from torchcaps.lab.reports.page import contents, section, write
from torchcaps.lab.reports.page import page as whole_page

CELL, MARGIN, LETTER = 18, 78, 7  # of the map, in pixels: a cell, the names of the layers, a letter of a token
LONGEST, TITLE = 14, 90  # letters of a token that the map shows, of a text that a heading shows
MOST_WORDS = 10
NOTHING = 1e-6  # a share that is none
ABOUT = (
    "Every token is a capsule at every depth of the language model, and each class capsule uses a share of it. Shown "
    "is the difference between classes: blue where a class used more of a word than the others did, orange where less, "
    "as against the whole text. To use more of a word is not to be more probable for it: what a word does to the "
    "probability, the last column says."
)
FOR, AGAINST = "--right", "--against"  # colors of the page


class Word(NamedTuple):
    """A word of a text, as a mean over its tokens and depths: how much more of it a class used than the others did,
    beyond what it used more of all words (``stands_out``), and how masking it changes the class's probability."""

    text: str
    stands_out: float
    used: float
    by_others: float
    depth: int  # where it stands out most
    change: float | None


def text_page(views: Sequence[TextView], title: str, classes: Sequence[str]) -> str:
    """All texts, one after the other."""
    head = f"<header><h1>{escape(title)}</h1><p class=faint>{ABOUT}</p></header>"
    titles = [_title(number, view) for number, view in enumerate(views, 1)]
    sections = [_section(name, view, classes) for name, view in zip(titles, views, strict=True)]
    return whole_page(title, [head, contents(titles) if len(titles) > 1 else "", *sections])


def write_text_page(path: Path, views: Sequence[TextView], title: str, classes: Sequence[str]) -> Path:
    """Write the page; half a character, as a terminal may give it, becomes a question mark."""
    return write(path, text_page(views, title, classes).encode("utf-8", "replace").decode())


def strongest_words(view: TextView, place: int, name: str) -> list[Word]:
    """The words of a text by how far the difference between a class and the others is from that of the whole text; the
    strongest first."""
    difference, used = view.difference(place), view.used[..., place]
    beyond = difference - difference.mean()
    found = []
    for number, tokens in enumerate(group_words(view.pieces)):
        of_word = beyond[tokens].mean(0)
        mean, taken = float(of_word.mean()), float(used[tokens].mean())
        text = "".join(view.pieces[token] for token in tokens).strip()
        depth = int((of_word * (1 if mean >= 0 else -1)).argmax())
        change = None if view.without is None else float(view.without[number, place]) - view.probability[name]
        found.append(Word(text, mean, taken, taken - float(difference[tokens].mean()), depth, change))
    return sorted(found, key=lambda word: -abs(word.stands_out))


def _title(number: int, view: TextView) -> str:
    text = view.text or "".join(view.pieces).strip()
    return f"{number}. {text[:TITLE]}{'…' if len(text) > TITLE else ''}"


def _section(title: str, view: TextView, classes: Sequence[str]) -> str:
    said = max(view.probability, key=view.probability.__getitem__)
    about = f"Predicted: {said}, {view.probability[said]:.1%}." + (f" Labeled: {view.label}." if view.label else "")
    bars = "".join(
        f'<tr><td>{escape(name)}</td><td><i class="bar" style="width:{160 * share:.0f}px"></i></td>'
        f"<td class=n>{share:.1%}</td></tr>"
        for name, share in view.probability.items()
    )
    order = sorted(range(len(classes)), key=lambda place: classes[place] != said)
    if len(classes) == 2:  # the other is its mirror
        order = order[:1]
    blocks = [_class_block(view, place, classes, unfolded=place == order[0]) for place in order]
    return section(title, about, f'<div class="wide"><table class="bars">{bars}</table></div>', *blocks)


def _class_block(view: TextView, place: int, classes: Sequence[str], *, unfolded: bool) -> str:
    difference, name = view.difference(place), classes[place]
    beyond = difference - difference.mean()
    words = strongest_words(view, place, name)
    others = classes[1 - place] if len(classes) == 2 else "the others"
    of_token = beyond.mean(1)
    reach = float(of_token.abs().max())
    tokens = "".join(_token(*each, reach) for each in zip(view.pieces, of_token.tolist(), strict=True))
    return (
        f"<details{' open' if unfolded else ''}><summary>What <b>{escape(name)}</b> used more or less of than "
        f'{escape(others)}</summary><p class="finding">{escape(_finding(view, words, place, name, others))}</p>'
        f'<p class="tokens">{tokens}</p>{_table(words, name, others)}'
        f"<h3>At every depth of the language model</h3>{_map(view, beyond)}</details>"
    )


def _finding(view: TextView, words: Sequence[Word], place: int, name: str, others: str) -> str:
    """What the whole text's difference is, which words stand out from it, and which word matters most."""
    used = float(view.used[..., place].mean())
    by_others = used - float(view.difference(place).mean())
    sides = [f"{name} used {used:.1%} of a token on average, {others} {by_others:.1%}."]
    for sign, side in ((1, "more"), (-1, "less")):
        strong = [word for word in words if sign * word.stands_out > NOTHING][:3]
        if strong:
            listed = ", ".join(f"“{word.text}” ({_points(word.stands_out)})" for word in strong)
            sides.append(f"Beyond that, {name} used {side} of {listed}.")
    changes = [(word.change, word.text) for word in words if word.change is not None]
    if changes:
        change, text = max(changes, key=lambda each: abs(each[0]))
        sides.append(f"Masking “{text}” changes the probability of {name} most, by {_points(change)}.")
    return " ".join(sides)


def _points(share: float) -> str:
    return f"{100 * share:+.2f} points".replace("-", "−")


def _table(words: Sequence[Word], name: str, others: str) -> str:
    """Words, the strongest first, with a bar to the right for more than on average and to the left for less."""
    shown = words[:MOST_WORDS]
    reach = max((abs(word.stands_out) for word in shown), default=0.0) or 1.0
    rows = [
        f"<tr><td>{escape(word.text)}</td><td>{_bar(word.stands_out / reach)}</td>"
        f"<td class=n>{_points(word.stands_out)}</td><td class=n>{word.used:.1%}</td>"
        f"<td class=n>{word.by_others:.1%}</td><td>{_layer(word.depth)}</td>"
        f"<td class=n>{'–' if word.change is None else _points(word.change)}</td></tr>"
        for word in shown
    ]
    masked = f"{name} without the word"
    header = ("word", "", "stands out by", f"used by {name}", f"by {others}", "most at", masked)
    cells = "".join(
        f"<th{' class=n' if column in (2, 3, 4, 6) else ''}>{escape(cell)}</th>" for column, cell in enumerate(header)
    )
    weaker = len(words) - len(shown)
    rest = f'<p class="faint">{weaker} weaker words are left out.</p>' if weaker else ""
    return f'<div class="wide"><table><tr>{cells}</tr>{"".join(rows)}</table></div>{rest}'


def _bar(part: float) -> str:
    side, color = ("right", FOR) if part >= 0 else ("left", AGAINST)
    style = f"width:{50 * abs(part):.0f}%;background:{_color(color, 0.8)}"
    return f'<div class="diverging"><i class="{side}" style="{style}"></i></div>'


def _layer(depth: int) -> str:
    return "embedding" if depth == 0 else f"layer {depth}"


def _token(piece: str, difference: float, reach: float) -> str:
    space = " " if piece.startswith(" ") else ""
    color = _color_of(difference, max(reach, NOTHING))
    return f'{space}<span style="background:{color}" title="{_points(difference)}">{escape(piece.strip())}</span>'


def _map(view: TextView, difference: Float[Tensor, "token depth"]) -> str:
    """Tokens from left to right, layers from the bottom up, in the same colors."""
    tokens, depths = difference.shape
    reach = max(float(difference.abs().max()), NOTHING)
    names = [piece.strip()[:LONGEST] for piece in view.pieces]
    foot = 10 + LETTER * max(map(len, names))
    parts = []
    for depth in range(depths):
        top = CELL * (depths - 1 - depth)
        parts.append(f'<text x="{MARGIN - 6}" y="{top + 13}" text-anchor="end">{_layer(depth)}</text>')
        for token, share in enumerate(difference[:, depth].tolist()):
            parts.append(
                f'<rect x="{MARGIN + CELL * token}" y="{top}" width="{CELL - 1}" height="{CELL - 1}" '
                f'style="fill:{_color_of(share, reach)}"><title>{escape(names[token])}, {_layer(depth)}: '
                f"{_points(share)}</title></rect>"
            )
    for token, name in enumerate(names):
        x, y = MARGIN + CELL * token + 13, CELL * depths + 6
        parts.append(f'<text transform="translate({x} {y}) rotate(-90)" text-anchor="end">{escape(name)}</text>')
    width, height = MARGIN + CELL * tokens + 2, CELL * depths + foot
    size = f'viewBox="0 0 {width} {height}" style="width:{width}px"'
    return f'<div class="wide"><svg {size} role="img" aria-label="tokens and layers">{"".join(parts)}</svg></div>'


def _color_of(difference: float, reach: float) -> str:
    return _color(FOR if difference >= 0 else AGAINST, 0.75 * min(1.0, abs(difference) / reach))


def _color(name: str, strength: float) -> str:
    return f"rgb(var({name}) / {strength:.2f})"
