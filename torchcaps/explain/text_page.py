"""A page that shows which tokens each class used: the text in colours at every depth, and a map of tokens and layers.

No script and no files besides: the page can be sent to someone as it is.
"""

import html
from collections.abc import Sequence
from pathlib import Path

from jaxtyping import Float
from torch import Tensor

from torchcaps.explain.text import TextView
from torchcaps.files import write_bytes

USED, IGNORED = "31, 119, 180", "230, 120, 20"  # blue and orange, told apart by colour-blind people too
CELL, MARGIN, LETTER = 18, 78, 7  # of the map, in pixels: a cell, the names of the layers, a letter of a token
LONGEST = 14  # letters of a token that the map shows


def page(views: Sequence[TextView], title: str, classes: Sequence[str]) -> str:
    """All texts, one after the other."""
    body = "\n".join(_section(number, view, classes) for number, view in enumerate(views, 1))
    return TEMPLATE.replace("TITLE", html.escape(title)).replace("BODY", body)


def write_page(path: Path, views: Sequence[TextView], title: str, classes: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, page(views, title, classes).encode("utf-8", "replace"))


def _section(number: int, view: TextView, classes: Sequence[str]) -> str:
    said = max(view.probability, key=view.probability.__getitem__)
    bars = "".join(
        f"<tr{' class=said' if name == said else ''}><td>{html.escape(name)}</td>"
        f'<td><i style="width:{180 * share:.0f}px"></i> {share:.1%}</td></tr>'
        for name, share in view.probability.items()
    )
    reach = max(float((view.used - view.even).abs().max()), 1e-9)
    order = sorted(range(len(classes)), key=lambda place: classes[place] != said)
    blocks = "".join(_class_block(view, place, classes[place], reach, place == order[0]) for place in order)
    text = view.text or "".join(view.pieces).strip()
    label = f"<p class=note>labelled {html.escape(view.label)}</p>" if view.label else ""
    return (
        f"<section><h2>{number}. {html.escape(text)}</h2>{label}<table class=bars>{bars}</table>"
        f"<p class=note>{_legend(view.even, reach)}</p>{blocks}</section>"
    )


def _class_block(view: TextView, place: int, name: str, reach: float, unfolded: bool) -> str:
    used = view.used[..., place]  # token depth
    lines = [_line("all depths", view, used.mean(1), reach)]
    for depth in reversed(range(used.shape[1])):
        lines.append(_line(_layer(depth), view, used[:, depth], reach))
    return (
        f"<details{' open' if unfolded else ''}><summary>what <b>{html.escape(name)}</b> used</summary>"
        f"<table class=depths>{''.join(lines)}</table>{_map(view, used, reach)}</details>"
    )


def _layer(depth: int) -> str:
    return "embedding" if depth == 0 else f"layer {depth}"


def _line(label: str, view: TextView, used: Float[Tensor, "token"], reach: float) -> str:
    tokens = "".join(
        _token(piece, share, view.even, reach) for piece, share in zip(view.pieces, used.tolist(), strict=True)
    )
    return f"<tr><th>{label}</th><td>{tokens}</td></tr>"


def _token(piece: str, share: float, even: float, reach: float) -> str:
    space = " " if piece.startswith(" ") else ""
    return (
        f'{space}<span style="background:{_colour(share, even, reach)}" title="{_numbers(share)}">'
        f"{html.escape(piece.strip())}</span>"
    )


def _map(view: TextView, used: Float[Tensor, "token depth"], reach: float) -> str:
    """Tokens from left to right, layers from the bottom up, in the same colours: what lies above what can be seen."""
    tokens, depths = used.shape
    names = [piece.strip()[:LONGEST] for piece in view.pieces]
    foot = 10 + LETTER * max(map(len, names))
    parts = []
    for depth in range(depths):
        top = CELL * (depths - 1 - depth)
        parts.append(f'<text x="{MARGIN - 6}" y="{top + 13}" text-anchor="end">{_layer(depth)}</text>')
        for token, share in enumerate(used[:, depth].tolist()):
            parts.append(
                f'<rect x="{MARGIN + CELL * token}" y="{top}" width="{CELL - 1}" height="{CELL - 1}" '
                f'fill="{_colour(share, view.even, reach)}"><title>{html.escape(names[token])}, {_layer(depth)}: '
                f"{_numbers(share)}</title></rect>"
            )
    for token, name in enumerate(names):
        x, y = MARGIN + CELL * token + 13, CELL * depths + 6
        parts.append(f'<text transform="translate({x} {y}) rotate(-90)" text-anchor="end">{html.escape(name)}</text>')
    width, height = MARGIN + CELL * tokens + 2, CELL * depths + foot
    return f'<div class=map><svg width="{width}" height="{height}" role="img">{"".join(parts)}</svg></div>'


def _colour(share: float, even: float, reach: float) -> str:
    strength = min(1.0, abs(share - even) / reach)
    return f"rgba({USED if share >= even else IGNORED},{0.75 * strength:.2f})"


def _numbers(share: float) -> str:
    return f"used {share:.1%}, ignored {1 - share:.1%}"


def _legend(even: float, reach: float) -> str:
    low, high = max(0.0, even - reach), min(1.0, even + reach)
    return (
        f'<span style="background:rgba({USED},.75)">used more</span>, up to {high:.1%} of the capsule; '
        f'<span style="background:rgba({IGNORED},.75)">ignored more</span>, down to {low:.1%}; no colour: the even '
        f"share of {even:.1%}. Point at a token for its numbers."
    )


TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>TITLE</title>
<style>
body{font:16px/1.5 system-ui,sans-serif;color:#222;background:#fff;max-width:64rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}.note{color:#555;font-size:.9rem}
table{border-collapse:collapse}.bars td{padding:0 .8rem 0 0}.bars i{display:inline-block;height:.7rem;background:#888}
.bars .said{font-weight:bold}.bars .said i{background:#1f77b4}
.depths th{font-weight:normal;color:#555;text-align:right;padding:.1rem .8rem .1rem 0;white-space:nowrap;
font-size:.85rem;vertical-align:top}
.depths tr:first-child td,.depths tr:first-child th{padding-bottom:.5rem;font-weight:bold}
.map{overflow-x:auto;margin:.8rem 0}.map text{font:12px system-ui,sans-serif;fill:#555}
details{margin:.6rem 0}summary{cursor:pointer}span{border-radius:3px;padding:1px 2px}
</style></head><body><h1>TITLE</h1>
<p>Each token is a capsule at every depth of the language model. The colours say which of them a class capsule used,
and which it ignored, when the network decided.</p>
BODY
</body></html>
"""
