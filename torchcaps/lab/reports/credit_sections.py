"""The part of a page of texts that shows credit: which tokens made each class, and which counted against it."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from torchcaps.lab.explanation.credit import CreditView
from torchcaps.lab.explanation.text import group_words
from torchcaps.lab.reports.token_marks import (
    NOTHING,
    bar,
    legend,
    mark_token,
    name_layer,
    text_section,
    token_map,
)

MOST_WORDS = 10
ABOUT_CREDIT = (
    "Every token is a vector at every depth of the language model. Each class credits each of them with a signed "
    "number, multiplied through all layers of vector routing: blue for credit above 0, orange for below, as a share of "
    "all credit that the class gave, of either sign. What a word does to the probability, the last column says: it is "
    "measured by masking the word."
)


class CreditedWord(NamedTuple):
    """A word of a text: the credit of its tokens at all depths, the depth of most of it, and how masking it changes the
    class's probability."""

    text: str
    credit: float
    depth: int
    change: float | None


def credited_words(view: CreditView, place: int, name: str) -> list[CreditedWord]:
    """The words of a text by what a class credits them with, the strongest first."""
    found = []
    for number, tokens in enumerate(group_words(view.pieces)):
        of_word = view.credit[tokens, :, place].sum(0)
        text = "".join(view.pieces[token] for token in tokens).strip()
        change = None if view.without is None else float(view.without[number, place]) - view.probability[name]
        found.append(CreditedWord(text, float(of_word.sum()), int(of_word.abs().argmax()), change))
    return sorted(found, key=lambda word: -abs(word.credit))


def credit_section(title: str, view: CreditView, classes: Sequence[str]) -> str:
    """One text with the credit of every class."""

    def block(place: int, unfolded: bool) -> str:
        return _class_block(view, place, classes[place], unfolded=unfolded)

    return text_section(title, view, classes, block)


def _class_block(view: CreditView, place: int, name: str, *, unfolded: bool) -> str:
    words = credited_words(view, place, name)
    of_token = view.credit[..., place].sum(1)
    reach = float(of_token.abs().max())
    tokens = "".join(mark_token(*each, reach, _share) for each in zip(view.pieces, of_token.tolist(), strict=True))
    return (
        f"<details{' open' if unfolded else ''}><summary>Credit for <b>{escape(name)}</b></summary>"
        f'<p class="finding">{escape(_finding(words, name))}</p>'
        f'<p class="tokens">{tokens}</p>{legend("credit above 0", "credit below 0")}{_table(words, name)}'
        f"<h3>At every depth of the language model</h3>{token_map(view.pieces, view.credit[..., place], _share)}"
        "</details>"
    )


def _finding(words: Sequence[CreditedWord], name: str) -> str:
    sides = []
    for sign, side in ((1, f"Most credit of {name}"), (-1, "Below 0")):
        strong = [word for word in words if sign * word.credit > NOTHING][:3]
        if strong:
            listed = ", ".join(f"“{word.text}” ({_share(word.credit)})" for word in strong)
            sides.append(f"{side}: {listed}.")
    changes = [(word.change, word.text) for word in words if word.change is not None]
    if changes:
        change, text = max(changes, key=lambda each: abs(each[0]))
        sides.append(f"Masking “{text}” changes the probability of {name} most, by {_points(change)}.")
    return " ".join(sides)


def _table(words: Sequence[CreditedWord], name: str) -> str:
    shown = words[:MOST_WORDS]
    reach = max((abs(word.credit) for word in shown), default=0.0) or 1.0
    rows = [
        f"<tr><td>{escape(word.text)}</td><td>{bar(word.credit / reach)}</td>"
        f"<td class=n>{_share(word.credit)}</td><td>{name_layer(word.depth)}</td>"
        f"<td class=n>{'–' if word.change is None else _points(word.change)}</td></tr>"
        for word in shown
    ]
    header = ("word", "", "credit", "most at", f"{name} without the word")
    cells = "".join(
        f"<th{' class=n' if column in (2, 4) else ''}>{escape(cell)}</th>" for column, cell in enumerate(header)
    )
    weaker = len(words) - len(shown)
    rest = f'<p class="faint">{weaker} weaker words are left out.</p>' if weaker else ""
    return f'<div class="wide"><table><tr>{cells}</tr>{"".join(rows)}</table></div>{rest}'


def _share(credit: float) -> str:
    return f"{100 * credit:+.1f} %".replace("-", "−")


def _points(share: float) -> str:
    return f"{100 * share:+.2f} points".replace("-", "−")
