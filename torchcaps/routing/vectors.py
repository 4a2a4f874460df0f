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

from torchcaps.kernels.modes import must_be_traceable

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
    _check_pairs(presence, beta_use, beta_ignore, pairs)
    return route_vectors(presence, mix, compare, beta_use, beta_ignore, num_iters=num_iters, pairs=pairs)


def route_vectors(
    presence: Float[Tensor, "*b i"],
    mix: Callable[[Tensor], Tensor],
    compare: Callable[[Tensor], Tensor],
    beta_use: Float[Tensor, "*#b #i j"],
    beta_ignore: Float[Tensor, "*#b #i j"],
    *,
    num_iters: int,
    pairs: Pairs | None,
) -> RoutedVectors:
    """``vector_routing`` of what layers have checked already."""
    parents = beta_use.shape[-1]
    present = rearrange(presence, "... i -> ... i 1")  # f(a_i)
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


def _check_pairs(presence: Tensor, beta_use: Tensor, beta_ignore: Tensor, pairs: Tensor | None) -> None:
    """Check the shapes of what a routing is given."""
    if not isinstance(presence, Tensor) or presence.ndim < 1:
        raise ValueError(f"presence is a tensor of shape (*b, i); got presence={presence!r:.80}")
    given = {"beta_use": beta_use, "beta_ignore": beta_ignore} | ({} if pairs is None else {"pairs": pairs})
    for name, tensor in given.items():
        if not isinstance(tensor, Tensor) or tensor.ndim < 2:
            raise ValueError(f"{name} is a tensor of shape (*b, i, j) or (i, j); got {name}={tensor!r:.80}")
    parents = beta_use.shape[-1]
    if parents < 2:
        raise ValueError(
            f"children choose between parents, so there are at least two; got beta_use of shape {tuple(beta_use.shape)}"
        )
    if pairs is not None and pairs.dtype != torch.bool:
        raise ValueError(f"pairs is of {pairs.dtype}; expected torch.bool, true where a child may go")
    each = presence.shape
    for name, tensor in given.items():
        *leading, last = tensor.shape
        fits = len(leading) <= len(each) and last == parents
        sizes = zip(reversed(leading), reversed(each), strict=False)
        if not fits or not all(size == wanted or size == 1 for size, wanted in sizes):
            raise ValueError(
                f"{name} has shape {tuple(tensor.shape)}; for presence of shape {tuple(each)} and {parents} parents it "
                f"is {(*each, parents)}, or {(each[-1], parents)} for all examples alike"
            )


def check_mask(mask: object, each: tuple[int, ...]) -> None:
    """Check which children there are, for children ``(*b, i)``: a tensor of one of the shapes, with shares from 0 to 1.

    Values are looked at on CPUs only: elsewhere the host would wait for the device.
    """
    if not isinstance(mask, Tensor) or mask.is_complex():
        got = f"one of {mask.dtype}" if isinstance(mask, Tensor) else f"mask={mask!r:.80}"
        raise ValueError(f"mask is a tensor of true and false, or of shares from 0 to 1; got {got}")
    if tuple(mask.shape) not in (each, each[-1:]):
        raise ValueError(
            f"mask has shape {tuple(mask.shape)}; for children {each} it is the same, or {each[-1:]} for all examples "
            "alike: true for children that are there, false for padding"
        )
    looks = mask.dtype != torch.bool and mask.is_cpu and mask.numel() > 0 and not must_be_traceable()
    if looks and not mask.detach().clamp(0, 1).equal(mask.detach()):  # what is not a number equals nothing
        low, high = mask.detach().aminmax()
        raise ValueError(
            f"mask has shares from 0, not there, to 1; got numbers from {low.item():.4g} to {high.item():.4g}"
        )


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
    mask: Mask | None = None,
    scale: Literal["example", "batch"] = "example",
    eps: float = EPS,
) -> Float[Tensor, "*b i k"]:
    """Credit from end to end of a stack of vector routings: what the last layer's parents credit the first layer's
    children with.

    Credit multiplies from layer to layer. After each product it is divided by its standard deviation, so that deep
    stacks neither vanish nor overflow: signs and proportions stay. Where there is a single number, it stays as it is.

    Args:
        credits: credit of each layer, from the first to the last.
        mask: which children of the first layer there are, as the layer was given it. Those that are not there have no
            credit, and the standard deviation leaves them out, so that padding changes nothing.
        scale: over what the standard deviation is taken: each ``"example"``, so that no example depends on the others
            of its batch; or the whole ``"batch"``, as the authors have it.
        eps: what is added to the standard deviation.

    Shape:
        - credits: ``(*b, i, j)``, ``(*b, j, k)``, …; mask: ``(*b, i)`` or ``(i,)``.
        - result: ``(*b, i, k)`` of the first and the last.

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
    first = credits[0]
    there = first.new_ones(()).expand(first.shape[:-1])
    if mask is not None:
        check_mask(mask, tuple(first.shape[:-1]))
        there = (mask > 0).to(first.dtype).expand(first.shape[:-1])
    there = rearrange(there, "... i -> ... i 1")
    product: Tensor | None = None
    for credit in credits:
        product = credit.masked_fill(there == 0, 0.0) if product is None else product @ credit
        product = product / _measure_deviation(product, there, scale, eps)
    assert product is not None
    return product


def _measure_deviation(
    credit: Float[Tensor, "*b i k"], there: Float[Tensor, "*b i 1"], scale: str, eps: float
) -> Float[Tensor, "..."]:
    """The standard deviation of the credit of children that are there, plus ``eps``; 1 for a single number."""
    axes = (-2, -1) if scale == "example" else tuple(range(credit.ndim))
    count = credit.shape[-1] * there.sum(axes, keepdim=True)
    mean = (credit * there).sum(axes, keepdim=True) / count.clamp_min(1.0)
    squares = ((credit - mean) * there).square().sum(axes, keepdim=True)
    deviation = (squares / (count - 1.0).clamp_min(1.0)).sqrt() + eps
    return torch.where(count > 1.0, deviation, 1.0)
