"""A page that shows the difference between classes in a text: what one capsule used more of than the others did; or
what each class credits each token with, where a network gives credit.

No files besides: the page can be sent to someone as it is.
"""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from torchcaps.lab.explanation.credit import CreditView
from torchcaps.lab.explanation.text import TextView, group_words
from torchcaps.lab.reports.credit_sections import ABOUT_CREDIT, credit_section
from torchcaps.lab.reports.page import contents, write
from torchcaps.lab.reports.page import page as whole_page
from torchcaps.lab.reports.token_marks import NOTHING, bar, mark_token, name_layer, text_section, token_map

TITLE = 90  # letters of a text that a heading shows
MOST_WORDS = 10
ABOUT = (
    "Every token is a capsule at every depth of the language model, and each class capsule uses a share of it. Shown "
    "is the difference between classes: blue where a class used more of a word than the others did, orange where less, "
    "as against the whole text. To use more of a word is not to be more probable for it: what a word does to the "
    "probability, the last column says."
)


class Word(NamedTuple):
    """A word of a text, as a mean over its tokens and depths: how much more of it a class used than the others did,
    beyond what it used more of all words (``stands_out``), and how masking it changes the class's probability."""

    text: str
    stands_out: float
    used: float
    by_others: float
    depth: int  # where it stands out most
    change: float | None


def text_page(views: Sequence[TextView | CreditView], name: str, classes: Sequence[str]) -> str:
    """All texts, one after the other, as the model of this name saw them."""
    credited = any(isinstance(view, CreditView) for view in views)
    about = ABOUT_CREDIT if credited else ABOUT
    title = f"{name}: {'what made each class' if credited else 'what each class used'}"
    head = f"<header><h1>{escape(title)}</h1><p class=faint>{about}</p></header>"
    titles = [_title(number, view) for number, view in enumerate(views, 1)]
    sections = [
        credit_section(each, view, classes) if isinstance(view, CreditView) else _section(each, view, classes)
        for each, view in zip(titles, views, strict=True)
    ]
    return whole_page(title, [head, contents(titles) if len(titles) > 1 else "", *sections])


def write_text_page(path: Path, views: Sequence[TextView | CreditView], name: str, classes: Sequence[str]) -> Path:
    """Write the page; half a character, as a terminal may give it, becomes a question mark."""
    return write(path, text_page(views, name, classes).encode("utf-8", "replace").decode())


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


def _title(number: int, view: TextView | CreditView) -> str:
    text = view.text or "".join(view.pieces).strip()
    return f"{number}. {text[:TITLE]}{'…' if len(text) > TITLE else ''}"


def _section(title: str, view: TextView, classes: Sequence[str]) -> str:
    def block(place: int, unfolded: bool) -> str:
        return _class_block(view, place, classes, unfolded=unfolded)

    return text_section(title, view, classes, block)


def _class_block(view: TextView, place: int, classes: Sequence[str], *, unfolded: bool) -> str:
    difference, name = view.difference(place), classes[place]
    beyond = difference - difference.mean()
    words = strongest_words(view, place, name)
    others = classes[1 - place] if len(classes) == 2 else "the others"
    of_token = beyond.mean(1)
    reach = float(of_token.abs().max())
    tokens = "".join(mark_token(*each, reach, _points) for each in zip(view.pieces, of_token.tolist(), strict=True))
    return (
        f"<details{' open' if unfolded else ''}><summary>What <b>{escape(name)}</b> used more or less of than "
        f'{escape(others)}</summary><p class="finding">{escape(_finding(view, words, place, name, others))}</p>'
        f'<p class="tokens">{tokens}</p>{_table(words, name, others)}'
        f"<h3>At every depth of the language model</h3>{token_map(view.pieces, beyond, _points)}</details>"
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
        f"<tr><td>{escape(word.text)}</td><td>{bar(word.stands_out / reach)}</td>"
        f"<td class=n>{_points(word.stands_out)}</td><td class=n>{word.used:.1%}</td>"
        f"<td class=n>{word.by_others:.1%}</td><td>{name_layer(word.depth)}</td>"
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
