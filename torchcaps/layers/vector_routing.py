"""Vectors to vectors: the routing of Heinsen 2022 in its efficient form."""

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps.capsules import check_sizes, log_sigmoid
from torchcaps.kernels.modes import in_full_precision, must_be_traceable, without_autocast
from torchcaps.layers.base import _at_least_single
from torchcaps.parameters import Device, Factory, reset_children
from torchcaps.routing.vectors import Mask, Pairs, RoutedVectors, check_mask, route_vectors

Vectors = Float[Tensor, "*b i d"]


class _BaseVectorRouting(nn.Module):
    """What both forms share: sizes, the betas, and masks."""

    beta_use: nn.Parameter | nn.Linear
    beta_ignore: nn.Parameter | nn.Linear

    def __init__(self, in_caps: int | None, in_pose: int | None, out_caps: int, num_iters: int) -> None:
        super().__init__()
        check_sizes(in_caps=in_caps, in_pose=in_pose, out_caps=out_caps, num_iters=num_iters)
        if out_caps is None or out_caps < 2:
            raise ValueError(f"children choose between parents, so there are at least two; got out_caps={out_caps}")
        self.in_caps, self.in_pose, self.out_caps, self.num_iters = in_caps, in_pose, out_caps, num_iters

    def _make_betas(self, factory: Factory) -> None:
        """A pair of numbers for each child and parent; of an open number of children, linear maps of the child."""
        for name in ("beta_use", "beta_ignore"):
            if self.in_caps is not None:
                setattr(self, name, nn.Parameter(torch.empty(self.in_caps, self.out_caps, **factory)))
            else:
                assert self.in_pose is not None
                setattr(self, name, nn.Linear(self.in_pose, self.out_caps, **factory))

    def _draw_betas(self) -> None:
        for beta in (self.beta_use, self.beta_ignore):
            if isinstance(beta, nn.Parameter):
                nn.init.normal_(beta)

    def _betas(self, vectors: Vectors) -> tuple[Tensor, Tensor]:
        use, ignore = self.beta_use, self.beta_ignore
        if isinstance(use, nn.Linear) and isinstance(ignore, nn.Linear):  # both maps in one matrix product
            weight, bias = torch.cat((use.weight, ignore.weight)), torch.cat((use.bias, ignore.bias))
            found = F.linear(vectors, weight.to(vectors.dtype), bias.to(vectors.dtype))
            return found[..., : self.out_caps], found[..., self.out_caps :]
        assert isinstance(use, nn.Parameter)
        assert isinstance(ignore, nn.Parameter)
        return use.to(vectors.dtype), ignore.to(vectors.dtype)

    def _check(self, vectors: Vectors) -> None:
        if not isinstance(vectors, Tensor):
            raise ValueError(
                f"{type(self).__name__} takes a tensor of vectors (*b, i, d); got {type(vectors).__name__}"
            )
        if not vectors.is_floating_point():
            raise ValueError(f"vectors are of {vectors.dtype}; expected floating-point numbers, such as torch.float32")
        got, sizes = tuple(vectors.shape), (self.in_caps, self.in_pose)
        fits = len(got) >= 2 and got[-2] > 0
        if not fits or any(wanted not in (None, size) for size, wanted in zip(got[-2:], sizes, strict=True)):
            children, size = ("any" if wanted is None else wanted for wanted in sizes)
            raise ValueError(f"this layer takes vectors of shape (*b, {children}, {size}); got {got}")

    def _check_masks(self, vectors: Vectors, mask: Tensor | None, pair_mask: Tensor | None) -> None:
        each, children = tuple(vectors.shape[:-1]), vectors.shape[-2]
        if mask is not None:
            check_mask(mask, each)
        if pair_mask is None:
            return
        pairs = (children, self.out_caps)
        if not isinstance(pair_mask, Tensor) or pair_mask.dtype != torch.bool:
            got = pair_mask.dtype if isinstance(pair_mask, Tensor) else type(pair_mask).__name__
            raise ValueError(f"pair_mask is of {got}; expected a tensor of torch.bool, true where a child may go")
        if tuple(pair_mask.shape) not in ((*each, self.out_caps), pairs):
            raise ValueError(
                f"pair_mask has shape {tuple(pair_mask.shape)}; for vectors of shape {tuple(vectors.shape)} and "
                f"{self.out_caps} parents it is {(*each, self.out_caps)}, or {pairs} for all examples alike: true "
                "where a child may go to a parent"
            )

    def _return(self, routed: RoutedVectors, return_credit: bool) -> Tensor | RoutedVectors:
        return routed if return_credit else routed.vectors


class VectorRouting(_BaseVectorRouting):
    """Heinsen 2022, the efficient form: a sequence of vectors to a sequence of vectors, by the parents that predict the
    children best.

    Votes share one matrix, scaled for each parent: (x_i ⊙ W_F1,j) W_F2 + B_F2,j. Their sum has a closed form, so no
    vote is ever computed, and memory grows with children × parents, not with the size of a vote. There are no scores;
    the signed credit φ_ij says what each child did for each parent.

    Args:
        in_caps: number of children; ``None`` for any number, which then share their weights.
        in_pose: numbers in a child.
        out_caps: number of parents, at least 2.
        out_pose: numbers in a parent.
        num_iters: iterations.
        normalize: whether parents are normalized (layer norm without weights); those of one number never are.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - vectors: ``(*b, in_caps, in_pose)``.
        - mask: ``(*b, in_caps)`` or ``(in_caps,)``; pair_mask: ``(*b, in_caps, out_caps)`` or ``(in_caps, out_caps)``.
        - result: ``(*b, out_caps, out_pose)``; credit: ``(*b, in_caps, out_caps)``.

    Returns:
        The parents; with ``return_credit=True``, ``RoutedVectors`` of parents and credit.

    Example:
        >>> layer = VectorRouting(None, 16, 3, 8)
        >>> layer(torch.randn(2, 7, 16)).shape
        torch.Size([2, 3, 8])
        >>> layer(torch.randn(2, 9, 16), return_credit=True).credit.shape
        torch.Size([2, 9, 3])
    """

    in_pose: int

    def __init__(
        self,
        in_caps: int | None,
        in_pose: int,
        out_caps: int,
        out_pose: int,
        *,
        num_iters: int = 2,
        normalize: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_caps, in_pose, out_caps, num_iters)
        check_sizes(out_pose=out_pose)
        self.out_pose, self.normalize = out_pose, normalize
        factory: Factory = {"device": device, "dtype": dtype}
        children, parents = in_caps or 1, out_caps

        def make(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(*shape, **factory))

        self.score_weight, self.score_bias = make(children, in_pose), make(children)  # W_A, B_A
        self.vote_scale = make(parents, in_pose)  # W_F1
        self.vote_weight, self.vote_bias = make(in_pose, out_pose), make(parents, out_pose)  # W_F2, B_F2
        self.predict_weight = make(out_pose, in_pose)  # W_G1
        self.predict_scale, self.predict_bias = make(parents, in_pose), make(parents, in_pose)  # W_G2, B_G2
        self.compare_weight, self.compare_bias = make(children, parents), make(children, parents)  # W_S, B_S
        self._make_betas(factory)
        self._draw()

    def reset_parameters(self) -> None:
        """Draw all parameters anew, as the author has them."""
        reset_children(self)
        self._draw()

    def _draw(self) -> None:
        wide, narrow = self.in_pose**-0.5, self.out_pose**-0.5
        spreads = {"score_weight": 2 * wide, "vote_scale": 1.0, "vote_weight": 2 * wide}
        spreads |= {"predict_weight": narrow, "predict_scale": 1.0, "compare_weight": wide}
        for name, std in spreads.items():
            nn.init.normal_(getattr(self, name), std=std)
        for bias in (self.score_bias, self.vote_bias, self.predict_bias, self.compare_bias):
            nn.init.zeros_(bias)
        self._draw_betas()

    def extra_repr(self) -> str:
        sizes = ("in_caps", "in_pose", "out_caps", "out_pose", "num_iters", "normalize")
        return ", ".join(f"{name}={getattr(self, name)}" for name in sizes)

    def forward(
        self,
        vectors: Vectors,
        mask: Mask | None = None,
        *,
        pair_mask: Pairs | None = None,
        return_credit: bool = False,
    ) -> Tensor | RoutedVectors:
        """Route the children to the parents.

        Args:
            vectors: the children.
            mask: which children there are: true or false, or shares from 0 to 1. What is not there changes nothing.
            pair_mask: which child may go to which parent; a child that may go to none is not there.
            return_credit: whether to return the credit as well.

        Returns:
            The parents, or parents and credit.
        """
        self._check(vectors)
        self._check_masks(vectors, mask, pair_mask)
        traceable = must_be_traceable()
        with without_autocast(vectors.device) if traceable else in_full_precision(vectors.device):
            routed = self._route(vectors.to(_at_least_single(vectors)), mask, pair_mask)
            if self.normalize:
                routed = routed._replace(vectors=self._norm(routed.vectors))
        return self._return(routed, return_credit)

    def _route(self, vectors: Vectors, mask: Tensor | None, pairs: Tensor | None) -> RoutedVectors:
        own = {
            name: parameter.to(vectors.dtype) for name, parameter in self._parameters.items() if parameter is not None
        }
        there = _merge_masks(vectors, mask, pairs)
        scale = _count_children(vectors, there) ** -0.5  # 1/√I, here in place of x, of which there would be a copy
        score = self._score(vectors, own["score_weight"])
        presence = (score * scale + own["score_bias"]).sigmoid()  # f(a_i)
        presence = presence if there is None else presence * there

        def mix(credit: Tensor) -> Tensor:  # (W_F1,j ⊙ Σ_i φ_ij x_i) W_F2 + B_F2,j Σ_i φ_ij
            total = credit.mT @ vectors * scale.unsqueeze(-1)
            weighed = rearrange(credit.sum(-2), "... j -> ... j 1")
            return (total * own["vote_scale"]) @ own["vote_weight"] + weighed * own["vote_bias"]

        def compare(parents: Tensor) -> Tensor:  # S_ij = ln σ(W_S,ij ⟨x_i, x̂_j⟩ + B_S,ij)
            predicted = self._norm(parents) @ own["predict_weight"] * own["predict_scale"] + own["predict_bias"]
            scaled = vectors @ predicted.mT * own["compare_weight"] + own["compare_bias"]
            return log_sigmoid(scaled) if must_be_traceable() else F.logsigmoid(scaled)

        use, ignore = self._betas(vectors)
        return route_vectors(presence, mix, compare, use, ignore, num_iters=self.num_iters, pairs=pairs)

    def _score(self, vectors: Vectors, weight: Tensor) -> Float[Tensor, "*b i"]:
        if self.in_caps is None:  # one weight for all: a matrix product, without a copy of the vectors
            return vectors @ weight[0]
        return torch.einsum("...id,id->...i", vectors, weight)

    def _norm(self, parents: Tensor) -> Tensor:
        return F.layer_norm(parents, (self.out_pose,)) if self.out_pose > 1 else parents


def _merge_masks(vectors: Vectors, mask: Tensor | None, pairs: Tensor | None) -> Tensor | None:
    """How far each child is there: the mask, and 0 where a child may go to no parent."""
    anywhere = None if pairs is None else pairs.any(-1)
    if mask is None or anywhere is None:
        there = mask if anywhere is None else anywhere
        return None if there is None else there.to(vectors.dtype)
    return mask.to(vectors.dtype) * anywhere


def _count_children(vectors: Vectors, there: Tensor | None) -> Float[Tensor, "*#b 1"]:
    """I, the number of children that are there; padding does not count."""
    if there is None:
        return vectors.new_ones(vectors.shape[-2]).sum(-1, keepdim=True)  # not a number, which exports would fix
    return there.sum(-1, keepdim=True).clamp_min(1.0)
