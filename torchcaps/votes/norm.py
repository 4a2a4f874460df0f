"""Batch norm over votes (Zhao 2020, Algorithm 2)."""

from collections.abc import Callable, Mapping
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from torchcaps.parameters import Device
from torchcaps.votes.base import Votes

NormAxes = Literal["component", "pair"]
"""What has a mean and a variance of its own: each pose component, or each component of each pair of capsules."""


class VoteNorm(nn.Module):
    """Batch norm of the votes, which are built for it."""

    def __init__(
        self,
        axes: NormAxes,
        children: int | None,
        parents: int | None,
        pose: int,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if axes not in ("component", "pair"):
            raise ValueError(f"no vote norm {axes!r}; there are 'component' and 'pair'")
        if axes == "pair" and (children is None or parents is None):
            raise ValueError("a vote norm for each pair needs fixed numbers of children and parents")
        self.axes = axes
        features = pose if axes == "component" else (children or 1) * (parents or 1) * pose
        self.norm = nn.BatchNorm1d(features, device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Begin anew: scale one, shift zero, no statistics."""
        self.norm.reset_parameters()

    def extra_repr(self) -> str:
        return repr(self.axes)

    def forward(self, votes: Votes) -> Votes:
        numbers = votes.tensor()
        if votes.there is not None:
            return votes.replaced(self._normalize_those_there(numbers, votes.there))
        rows = numbers.reshape(-1, self.norm.num_features)
        return votes.replaced(normalize(self.norm, rows).reshape(numbers.shape))

    def _normalize_those_there(
        self, numbers: Float[Tensor, "*b i j p"], there: Bool[Tensor, "*b i"]
    ) -> Float[Tensor, "*b i j p"]:
        """The votes of children in the padding of a convolution are no part of the statistics, and stay zero."""
        chosen = numbers[there]
        normed = normalize(self.norm, chosen.reshape(-1, self.norm.num_features))
        return torch.zeros_like(numbers).masked_scatter(there[..., None, None], normed)


def normalize(norm: Callable[[Tensor], Tensor], numbers: Tensor) -> Tensor:
    """``norm(numbers)`` in the numbers' own type: routing works in single precision where a module's parameters are in
    half precision."""
    if not isinstance(norm, nn.Module):
        return norm(numbers)
    if not norm._modules and _fits(norm._parameters, numbers) and _fits(norm._buffers, numbers):
        return norm(numbers)  # as it nearly always is, told without a walk through modules
    state = {**dict(norm.named_parameters()), **dict(norm.named_buffers())}
    floating = {name: tensor for name, tensor in state.items() if tensor.is_floating_point()}
    if all(tensor.dtype == numbers.dtype for tensor in floating.values()):
        return norm(numbers)
    cast = {name: tensor.to(numbers.dtype) for name, tensor in floating.items()}
    result = torch.func.functional_call(norm, cast, (numbers,))
    with torch.no_grad():
        for name, buffer in norm.named_buffers():
            if name in cast:  # running statistics
                buffer.copy_(cast[name])
    return result


def _fits(state: Mapping[str, Tensor | None], numbers: Tensor) -> bool:
    for tensor in state.values():  # no generator: small layers feel it
        if tensor is not None and tensor.dtype != numbers.dtype and tensor.is_floating_point():
            return False
    return True
