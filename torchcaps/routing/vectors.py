"""Heinsen, *An Algorithm for Routing Vectors in Sequences*, 2022: one loop for all of its forms, and its credit.

Parents are sums of votes, weighted by a signed credit φ_ij: what it is worth to parent j to use its share of child i,
less what it costs to ignore the rest. The loop asks for two things only: to mix votes by credit, and to compare the
children with what the parents predict of them. So votes need not exist.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor

Mask = Bool[Tensor, "*#b i"] | Float[Tensor, "*#b i"]
"""Which children there are: true or false, or a share from 0 to 1."""
Pairs = Bool[Tensor, "*#b i j"]
"""Which child may go to which parent."""

EPS = 1e-5  # what the authors add to a standard deviation


class RoutedVectors(NamedTuple):
    """What a vector routing returns when it is asked for credit.

    Args:
        vectors: the parents.
        credit: what each parent credits each child with (φ): above 0 for what was used with profit, below 0 for what
            counted against it, 0 for a child that is not there.

    Shape:
        - vectors: ``(*b, j, h)``; credit: ``(*b, i, j)``.
    """

    vectors: Float[Tensor, "*b j h"]
    credit: Float[Tensor, "*b i j"]


def vector_routing(
    presence: Float[Tensor, "*b i"],
    mix: Callable[[Tensor], Tensor],
    compare: Callable[[Tensor], Tensor],
    beta_use: Float[Tensor, "*#b #i j"],
    beta_ignore: Float[Tensor, "*#b #i j"],
    *,
    num_iters: int = 2,
    pairs: Pairs | None = None,
) -> RoutedVectors:
    """Route vectors, given what their votes add up to and how well parents predict them.

    Args:
        presence: how far each child is there, f(a_i); 0 for what is masked.
        mix: from credit to the sum of all votes that it weighs.
        compare: from the parents to the log-likelihood S_ij of each child under what each parent predicts.
        beta_use: net benefit of using a child, per unit of it.
        beta_ignore: net cost of ignoring it.
        num_iters: iterations.
        pairs: which child may go to which parent; all if left out.

    Shape:
        - presence: ``(*b, i)``; betas: ``(*b, i, j)`` or ``(i, j)``; pairs: ``(*b, i, j)`` or ``(i, j)``.
        - mix: ``(*b, i, j)`` to ``(*b, j, h)``; compare: ``(*b, j, h)`` to ``(*b, i, j)``.

    Returns:
        The parents, and the credit of the last iteration.

    Example:
        >>> children, weight = torch.randn(2, 7, 4), torch.randn(3, 4)
        >>> found = vector_routing(
        ...     torch.ones(2, 7),
        ...     mix=lambda credit: credit.mT @ children * weight,
        ...     compare=lambda parents: children @ parents.mT,
        ...     beta_use=torch.ones(7, 3),
        ...     beta_ignore=torch.zeros(7, 3),
        ... )
        >>> found.vectors.shape, found.credit.shape
        (torch.Size([2, 3, 4]), torch.Size([2, 7, 3]))
    """
    if num_iters < 1:
        raise ValueError(f"routing needs at least one iteration; got num_iters={num_iters}")
    present = rearrange(presence, "... i -> ... i 1")  # f(a_i)
    parents = beta_use.shape[-1]
    coupling = present.new_full((parents,), 1.0 / parents) if pairs is None else _share_evenly(pairs, present.dtype)
    allowed = present if pairs is None else present * pairs
    worth = beta_use + beta_ignore  # φ = f(a) (β_use R − β_ign (1 − R)) = f(a) ((β_use + β_ign) R − β_ign)
    vectors, credit = present, present
    for iteration in range(num_iters):
        if iteration:
            coupling = _compete(compare(vectors), pairs)  # R_ij
        credit = allowed * (worth * coupling - beta_ignore)  # φ_ij
        vectors = mix(credit)
    return RoutedVectors(vectors, credit)


def _share_evenly(pairs: Pairs, dtype: torch.dtype) -> Float[Tensor, "*b i j"]:
    """Equal shares for all parents that a child may go to; of a child that may go to none, none."""
    open_to = pairs.to(dtype)
    return open_to / open_to.sum(-1, keepdim=True).clamp_min(1.0)


def _compete(similarity: Float[Tensor, "*b i j"], pairs: Pairs | None) -> Float[Tensor, "*b i j"]:
    """The softmax over the parents that a child may go to."""
    if pairs is None:
        return similarity.softmax(-1)
    anywhere = pairs.any(-1, keepdim=True)  # a row without any parent would be 0 / 0
    return similarity.masked_fill(~pairs & anywhere, -torch.inf).softmax(-1) * anywhere


def combine_credit(
    credits: Sequence[Tensor],
    *,
    scale: Literal["example", "batch"] = "example",
    eps: float = EPS,
) -> Float[Tensor, "*b i k"]:
    """Credit from end to end of a stack of vector routings: what the last layer's parents credit the first layer's
    children with.

    Credit multiplies from layer to layer. After each product it is divided by its standard deviation, so that deep
    stacks neither vanish nor overflow: signs and proportions stay.

    Args:
        credits: credit of each layer, from the first to the last.
        scale: over what the standard deviation is taken: each ``"example"``, so that no example depends on the others
            of its batch; or the whole ``"batch"``, as the authors have it.
        eps: what is added to the standard deviation.

    Shape:
        - credits: ``(*b, i, j)``, ``(*b, j, k)``, …; the result: ``(*b, i, k)`` of the first and the last.

    Returns:
        The credit.

    Example:
        >>> combine_credit([torch.randn(2, 9, 5), torch.randn(2, 5, 3)]).shape
        torch.Size([2, 9, 3])
    """
    if not credits:
        raise ValueError("no credit to combine; give that of at least one layer")
    if scale not in ("example", "batch"):
        raise ValueError(f"scale is {scale!r}; expected 'example' or 'batch'")
    for below, above in pairwise(credits):
        if below.shape[-1] != above.shape[-2] or below.shape[:-2] != above.shape[:-2]:
            raise ValueError(
                f"credit of shape {tuple(above.shape)} does not follow on {tuple(below.shape)}; give one (*b, i, j) "
                "for each layer, from the first to the last, each for as many children as the one before has parents"
            )
    product: Tensor | None = None
    for credit in credits:
        product = credit if product is None else product @ credit
        deviation = product.std((-2, -1), keepdim=True) if scale == "example" else product.std()
        product = product / (deviation + eps)
    assert product is not None
    return product
