"""What the references share: who sees whom, example by example."""

from collections.abc import Callable

import torch
from jaxtyping import Bool
from torch import Tensor

Sees = Bool[Tensor, "i j"]


def squash_rationally(s: Tensor) -> Tensor:
    square = torch.dot(s, s)
    return square / (1 + square) * s / torch.sqrt(square)


def squash_vector(s: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """The pose that a vector is squashed to, and the score whose presence is the pose's length."""
    if kind == "rational":
        return squash_rationally(s), torch.log(torch.dot(s, s))
    length = torch.sqrt(torch.dot(s, s))
    return (1 - torch.exp(-length)) * s / length, torch.log(torch.exp(length) - 1)


def list_beside(j: int, n_j: int, types: int | None) -> range:
    """The parents at the position of one of them."""
    types = n_j if types is None else types
    return range(j // types * types, j // types * types + types)


def list_seen(sees: Tensor | None, n_i: int, n_j: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(n_i) for j in range(n_j) if sees is None or bool(sees[i, j])]


def route_each(one: Callable[..., tuple[Tensor, ...]], *tensors: Tensor) -> tuple[Tensor, ...]:
    """Example by example, whatever the number of batch axes; the first tensor has three axes of its own."""
    batch = tensors[0].shape[:-3]
    flat = [tensor.reshape(-1, *tensor.shape[len(batch) :]) for tensor in tensors]
    results = [one(*(tensor[b] for tensor in flat)) for b in range(len(flat[0]))]
    return tuple(torch.stack(parts).reshape(*batch, *parts[0].shape) for parts in zip(*results, strict=True))
