"""A routing that lives outside the package, as a user would write it: parents by votes near their middle."""

from typing import Any

import torch
from torch import Tensor, nn

from torchcaps import Capsules
from torchcaps.routing import Routing, Trace, VoteShape
from torchcaps.votes import tensor_votes
from torchcaps.votes.built import BlockVotes


class MedianRouting(Routing):
    """Each child goes to the parents whose middle its votes are near to; a parent is there where its votes are."""

    title = "median"
    suited_losses = ("cross_entropy",)

    def __init__(self, num_iters: int = 2) -> None:
        super().__init__()
        self.num_iters = num_iters

    def attach(self, shape: VoteShape) -> None:
        super().attach(shape)
        self.sharpness = nn.Parameter(torch.ones(shape.parents or 1))

    def forward(self, votes: Any, score: Tensor | None = None, *, trace: Trace | None = None) -> Capsules:
        operator = tensor_votes(votes)
        num_iters = self.num_iters

        def route(votes: BlockVotes, score: Tensor | None, sharpness: Tensor) -> tuple[Tensor, Tensor]:
            presence = votes.pairs()[..., 0] + 1.0 if score is None else score.sigmoid()
            coupling = mean = near = votes.compete_evenly()
            for iteration in range(num_iters):
                used = presence.unsqueeze(-1) * coupling
                mean = votes.mix(used) / (votes.mass(used).unsqueeze(-1) + 1e-6)
                precision = -sharpness.exp().unsqueeze(-1).expand_as(mean)
                distance = votes.distance(mean, precision)
                near = (used * distance).sum(-2) + presence.sum(-1, keepdim=True)
                if trace is not None:
                    trace.record(operator, coupling, mean, near)
                if iteration < num_iters - 1:
                    coupling = votes.compete(distance)
            return mean, near

        children = operator.of_children(score)
        mean, near = operator.run(route, per_example=[children], shared=[self.sharpness], whole=trace is not None)
        return Capsules(mean, near)


def refer_median(votes: Tensor, score: Tensor, sharpness: Tensor) -> Capsules:
    """The same by the plain formula, for two iterations."""
    presence = score.sigmoid()
    coupling = torch.full(votes.shape[:-1], 1.0 / votes.shape[-2], dtype=votes.dtype)
    mean = near = votes
    for _ in range(2):
        used = presence[..., None] * coupling
        mean = torch.einsum("bij,bijp->bjp", used, votes) / (used.sum(1)[..., None] + 1e-6)
        distance = -((votes - mean[:, None]).square() * sharpness.exp()[:, None]).sum(-1)
        near = (used * distance).sum(1) + presence.sum(1, keepdim=True)
        coupling = distance.softmax(-1)
    return Capsules(mean, near)
