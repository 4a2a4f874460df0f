"""Which tokens, at which depth of the language model, each class capsule used, and which it ignored.

A child gives each parent a share of itself (Heinsen's R_ij); what a parent uses of it is D_use = f(a_i) R_ij. Through
two layers the shares multiply: of a token's capsule, the class uses the sum over the parts between of what each part
uses of the token times what the class uses of the part; the rest of the capsule it ignores. Where nothing is preferred,
every class uses the same share of everything, and the even share is where colours begin.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from torchcaps.models import CapsuleNet, Model
from torchcaps.models.base import device_of
from torchcaps.recipes import AnyRecipe
from torchcaps.routing import Trace


@dataclass(frozen=True)
class TextView:
    """One text as the network saw it."""

    pieces: tuple[str, ...]  # the tokens, as they read
    used: Float[Tensor, "token depth k"]  # share of each token's capsule, at each depth, that each class used
    probability: dict[str, float]  # of each class
    text: str = ""  # as it was given
    label: str = ""  # what the data say it is, where they do

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


def text_views(model: Model, recipe: AnyRecipe, texts: Sequence[str]) -> list[TextView]:
    """Texts as a network sees them; the recipe says which language model it was trained with."""
    from torchcaps.text import predict_with, shared_encoder  # language models are heavy to import

    _check_routes(model)
    predicted = predict_with(model, recipe, texts)
    encoder = shared_encoder(recipe.text.encoder)
    views = []
    for text, said in zip(texts, predicted, strict=True):
        ids = encoder.tokenize([text]).ids
        hidden = encoder.encode(ids)
        used = used_shares(model, hidden.states.clone(), hidden.mask.float())[0]
        views.append(TextView(tuple(encoder.words(ids[0])), used, said.probability, text))
    return views
