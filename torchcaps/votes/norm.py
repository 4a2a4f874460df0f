"""Batch norm over votes (Zhao 2020, Algorithm 2)."""

from typing import Literal

from torch import nn

from torchcaps.votes.base import Votes

NormAxes = Literal["component", "pair"]
"""What has a mean and a variance of its own: each pose component, or each component of each pair of capsules."""


class VoteNorm(nn.Module):
    """Batch norm of the votes, which are built for it."""

    def __init__(self, axes: NormAxes, children: int | None, parents: int | None, pose: int) -> None:
        super().__init__()
        if axes not in ("component", "pair"):
            raise ValueError(f"no vote norm {axes!r}; there are 'component' and 'pair'")
        if axes == "pair" and (children is None or parents is None):
            raise ValueError("a vote norm for each pair needs fixed numbers of children and parents")
        self.axes = axes
        self.norm = nn.BatchNorm1d(pose if axes == "component" else (children or 1) * (parents or 1) * pose)

    def forward(self, votes: Votes) -> Votes:
        numbers = votes.tensor()
        rows = numbers.reshape(-1, self.norm.num_features)
        return votes.replaced(self.norm(rows).reshape(numbers.shape))
