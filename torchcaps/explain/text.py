"""Which tokens, at which depth of the language model, each class capsule used, and which it ignored.

A child gives each parent a share of itself (Heinsen's R_ij); what a parent uses of it is D_use = f(a_i) R_ij. Through
two layers the shares multiply: of a token's capsule, the class uses the sum over the parts between of what each part
uses of the token times what the class uses of the part; the rest of the capsule it ignores. Where nothing is preferred,
every class uses the same share of everything, and the even share is where colours begin.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from torchcaps.models import CapsuleNet, Model
from torchcaps.recipes import AnyRecipe
from torchcaps.routing import Trace
from torchcaps.train.files import write_bytes

USED, IGNORED = "31, 119, 180", "230, 120, 20"  # blue and orange, told apart by colour-blind people too


@dataclass(frozen=True)
class TextView:
    """One text as the network saw it."""

    pieces: tuple[str, ...]  # the tokens, as they read
    used: Float[Tensor, "token depth k"]  # share of each token's capsule, at each depth, that each class used
    probability: dict[str, float]  # of each class

    @property
    def ignored(self) -> Float[Tensor, "token depth k"]:
        """What of a capsule a class did not use; a token that is there is there whole."""
        return 1.0 - self.used

    @property
    def even(self) -> float:
        """The share that every class would use if the network had no preference on this text."""
        return float(self.used.mean())


@torch.no_grad()
def used_shares(
    model: Model, states: Float[Tensor, "n token depth width"], mask: Float[Tensor, "n token"]
) -> Float[Tensor, "n token depth k"]:
    """Of the capsule of each token and depth, the share that each class capsule used; 0 for padding."""
    if not isinstance(model, CapsuleNet) or model.num_iters is not None:
        raise ValueError(f"{type(model).__name__} routes no tokens layer by layer; give a network such as Heinsen's")
    model.eval()
    capsules = model.first_capsules(states, mask)
    shares: Tensor | None = None
    for layer in model.layers:
        trace = Trace()
        above = layer(capsules, trace=trace)
        used = capsules.presence.unsqueeze(-1) * trace.iterations[-1].coupling  # D_use
        shares = used if shares is None else shares @ used
        capsules = above
    assert shares is not None
    return rearrange(shares, "n (token depth) k -> n token depth k", depth=states.shape[2])


def text_views(model: Model, recipe: AnyRecipe, texts: Sequence[str]) -> list[TextView]:
    """Texts as a network sees them; the recipe says which language model it was trained with."""
    from torchcaps.text import predict_with, shared_encoder  # language models are heavy to import

    predicted = predict_with(model, recipe, texts)
    encoder = shared_encoder(recipe.text.encoder)
    views = []
    for text, said in zip(texts, predicted, strict=True):
        ids = encoder.tokenize([text]).ids
        hidden = encoder.encode(ids)
        used = used_shares(model, hidden.states.clone(), hidden.mask.float())[0]
        views.append(TextView(tuple(encoder.words(ids[0])), used, said.probability))
    return views


def page(views: Sequence[TextView], title: str, classes: Sequence[str]) -> str:
    """All texts on a page of its own: no script, no files besides."""
    body = "\n".join(_section(number, view, classes) for number, view in enumerate(views, 1))
    return TEMPLATE.replace("TITLE", html.escape(title)).replace("BODY", body)


def write_page(path: Path, views: Sequence[TextView], title: str, classes: Sequence[str]) -> None:
    write_bytes(path, page(views, title, classes).encode())


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
    text = "".join(view.pieces).strip()
    return (
        f"<section><h2>{number}. {html.escape(text)}</h2><table class=bars>{bars}</table>"
        f"<p class=note>{_legend(view.even, reach)}</p>{blocks}</section>"
    )


def _class_block(view: TextView, place: int, name: str, reach: float, unfolded: bool) -> str:
    used = view.used[..., place]  # token depth
    lines = [_line("all depths", view, used.mean(1), reach)]
    for depth in reversed(range(used.shape[1])):
        label = "embedding" if depth == 0 else f"layer {depth}"
        lines.append(_line(label, view, used[:, depth], reach))
    return (
        f"<details{' open' if unfolded else ''}><summary>what <b>{html.escape(name)}</b> used</summary>"
        f"<table class=depths>{''.join(lines)}</table></details>"
    )


def _line(label: str, view: TextView, used: Float[Tensor, "token"], reach: float) -> str:
    tokens = "".join(
        _token(piece, share, view.even, reach) for piece, share in zip(view.pieces, used.tolist(), strict=True)
    )
    return f"<tr><th>{label}</th><td>{tokens}</td></tr>"


def _token(piece: str, share: float, even: float, reach: float) -> str:
    strength = min(1.0, abs(share - even) / reach)
    colour = USED if share >= even else IGNORED
    space = " " if piece.startswith(" ") else ""
    return (
        f'{space}<span style="background:rgba({colour},{0.75 * strength:.2f})" '
        f'title="used {share:.1%}, ignored {1 - share:.1%}">{html.escape(piece.strip())}</span>'
    )


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
details{margin:.6rem 0}summary{cursor:pointer}span{border-radius:3px;padding:1px 2px}
</style></head><body><h1>TITLE</h1>
<p>Each token is a capsule at every depth of the language model. The colours say which of them a class capsule used,
and which it ignored, when the network decided.</p>
BODY
</body></html>
"""
