"""Which tokens, at which depth of the language model, each class capsule used, and which it ignored.

A child gives each parent a share of itself (Heinsen's R_ij); what a parent uses of it is D_use = f(a_i) R_ij. Through
two layers the shares multiply: of a token's capsule, the class uses the sum over the parts between of what each part
uses of the token times what the class uses of the part; the rest of the capsule it ignores. Where nothing is preferred,
every class uses the same share of everything. A class may use less of the words that make it probable (β_ignore pays
for what is ignored), so use alone is no evidence: that is what the probabilities without a word are for.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Bool, Float
from matplotlib.figure import Figure
from torch import Tensor, nn

from torchcaps.lab.evaluation.evaluation import probabilities
from torchcaps.lab.explanation.couplings import class_shares
from torchcaps.lab.explanation.credit import CreditView, GivesCredit, credit_shares
from torchcaps.lab.explanation.figures import INK, SEQUENTIAL, SMALL, TINY, drawing, grid_of_panels, new_figure
from torchcaps.lab.explanation.records import FigureRecord, as_array, class_names
from torchcaps.lab.recipes import AnyRecipe, build_loss
from torchcaps.lab.tracing.networks import require_capsules
from torchcaps.lab.tracing.traces import trace_with_logits
from torchcaps.models import CapsuleNet, Model
from torchcaps.models.base import device_of
from torchcaps.routing import Trace


@dataclass(frozen=True)
class TextView:
    """One text as the network saw it."""

    pieces: tuple[str, ...]  # the tokens, as they read
    used: Float[Tensor, "token depth k"]  # share of each token's capsule, at each depth, that each class used
    probability: dict[str, float]  # of each class
    text: str = ""  # as it was given
    label: str = ""  # what the data say it is, where they do
    without: Float[Tensor, "word k"] | None = None  # probability of each class if the tokens of a word are masked

    @property
    def ignored(self) -> Float[Tensor, "token depth k"]:
        """What of a capsule a class did not use; a token that is there is there whole."""
        return 1.0 - self.used

    def difference(self, place: int) -> Float[Tensor, "token depth"]:
        """How much more of each capsule a class used than the others did on average: 0 where nothing is preferred."""
        others = self.used.shape[-1] - 1
        total = self.used.sum(-1)
        return self.used[..., place] - (total - self.used[..., place]) / max(others, 1)


@torch.no_grad()
def used_shares(
    model: Model, states: Float[Tensor, "n token depth width"], mask: Float[Tensor, "n token"]
) -> Float[Tensor, "n token depth k"]:
    """Of the capsule of each token and depth, the share that each class capsule used; 0 for padding."""
    network = _check_routes(model).eval()
    states, mask = states.to(device_of(network)), mask.to(device_of(network))
    capsules = network.first_capsules(states, mask)
    shares: Tensor | None = None
    for layer in network.layers:
        trace = Trace()
        above = layer(capsules, trace=trace)
        used = capsules.presence.unsqueeze(-1) * trace.iterations[-1].coupling  # D_use
        shares = used if shares is None else shares @ used
        capsules = above
    assert shares is not None
    return rearrange(shares, "n (token depth) k -> n token depth k", depth=states.shape[2]).cpu()


def _check_routes(model: Model) -> CapsuleNet:
    if not isinstance(model, CapsuleNet) or model.num_iters is not None:
        raise ValueError(f"{type(model).__name__} routes no tokens layer by layer; give a network such as Heinsen's")
    return model


def text_views(model: Model, recipe: AnyRecipe, texts: Sequence[str]) -> list[TextView] | list[CreditView]:
    """Texts as a network sees them, by its credit if it gives any; the recipe says which language model it was trained
    with."""
    from torchcaps.lab.text import predict_with, shared_encoder  # language models are heavy to import

    credited = isinstance(model, GivesCredit)
    if not credited:
        _check_routes(model)
    predicted = predict_with(model, recipe, texts)
    encoder = shared_encoder(recipe.text.encoder)
    views = []
    for text, said in zip(texts, predicted, strict=True):
        ids = encoder.tokenize([text]).ids
        hidden = encoder.encode(ids)
        measure, view = (credit_shares, CreditView) if credited else (used_shares, TextView)
        found = measure(model, hidden.states.clone(), hidden.mask.float())[0]
        pieces = tuple(encoder.words(ids[0]))
        without = probabilities(mask_words(model, hidden.states, hidden.mask.float(), pieces), build_loss(recipe))
        views.append(view(pieces, found, said.probability, text, without=without))
    return views


def group_words(pieces: Sequence[str]) -> list[list[int]]:
    """The tokens of each word: one that starts with a space starts a word.

    >>> group_words([" a", " wel", "come"])
    [[0], [1, 2]]
    """
    groups: list[list[int]] = []
    for token, piece in enumerate(pieces):
        if groups and not piece.startswith(" "):
            groups[-1].append(token)
        else:
            groups.append([token])
    return groups


@torch.no_grad()
def mask_words(
    model: Model, states: Float[Tensor, "1 token depth width"], mask: Float[Tensor, "1 token"], pieces: Sequence[str]
) -> Float[Tensor, "word k"]:
    """The logits of a text with one word after the other masked: its capsules are absent, though the language model has
    read it."""
    logits, place = [], device_of(model)
    for word in group_words(pieces):
        kept = mask.clone()
        kept[:, word] = 0.0
        logits.append(model.eval()(states.clone().to(place), kept.to(place)).logits)
    return torch.cat(logits).cpu()


@dataclass(frozen=True)
class TokenUse(FigureRecord):
    """How much of each token, at each layer of the language model, a network uses for each class, and how much it
    ignores (the D-step of Heinsen 2019, through all layers of capsules): the two sum to the token's presence."""

    use: Float[np.ndarray, "token depth k"]
    ignore: Float[np.ndarray, "token depth k"]
    probability: Float[np.ndarray, "k"]
    tokens: tuple[str, ...]
    classes: tuple[str, ...]


@torch.no_grad()
def measure_token_use(
    model: nn.Module,
    states: Float[Tensor, "token depth embedding"],
    tokens: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    mask: Bool[Tensor, "token"] | None = None,
) -> TokenUse:
    """Trace a network for text on one sentence's hidden states."""
    net = require_capsules(model)
    count, depth = states.shape[:2]
    if tokens is not None and len(tokens) != count:
        raise ValueError(f"{len(tokens)} tokens for hidden states of {count}; give one for each")
    layers, (logits,) = trace_with_logits(net, states.unsqueeze(0), None if mask is None else mask.unsqueeze(0))
    first = layers[0].children.pose
    if first.ndim != 3 or first.shape[1] != count * depth:
        raise ValueError(f"this network has no capsule for each token and layer; its first are {tuple(first.shape)}")
    presence = layers[0].presence[0]
    use = presence.unsqueeze(-1) * class_shares(layers)[0]
    apart = {"token": count, "depth": depth}
    ignore = presence.unsqueeze(-1) - use
    return TokenUse(
        as_array(rearrange(use, "(token depth) k -> token depth k", **apart)),
        as_array(rearrange(ignore, "(token depth) k -> token depth k", **apart)),
        as_array(logits.softmax(-1)),
        tuple(tokens) if tokens is not None else tuple(str(number + 1) for number in range(count)),
        class_names(classes, logits.shape[-1]),
    )


@drawing
def draw_token_use(record: TokenUse, title: str = "", *, most_classes: int = 3) -> Figure:
    """Tokens × layers of the language model for the most probable classes: the brighter, the more is used."""
    chosen = np.argsort(-record.probability)[:most_classes]
    tokens, depth = record.use.shape[:2]
    figure = new_figure(
        1.4 + len(chosen) * max(1.6, 0.09 * depth + 0.6), max(2.6, 0.19 * tokens + 1.7), title or "What is used"
    )
    panels = grid_of_panels(figure, 1, len(chosen), sharey=True)[0]
    highest = max(float(record.use[..., chosen].max()), 1e-6)
    picture = None
    for panel, k in zip(panels, chosen, strict=True):
        picture = panel.imshow(record.use[..., k], cmap=SEQUENTIAL, vmin=0.0, vmax=highest, aspect="auto")
        panel.set_title(f"for “{record.classes[k]}”\n(probability {100 * record.probability[k]:.0f} %)", color=INK)
        panel.set_xlabel("layer of the language model")
        ticks = np.unique(np.linspace(0, depth - 1, min(depth, 5)).astype(int))
        panel.set_xticks(ticks, [str(tick) for tick in ticks])
    panels[0].set_yticks(range(tokens), record.tokens, fontsize=TINY if tokens > 15 else SMALL)
    assert picture is not None
    figure.colorbar(picture, ax=panels, label="used (the rest is ignored)", shrink=0.9)
    return figure
