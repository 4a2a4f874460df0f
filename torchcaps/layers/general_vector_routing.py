"""Vectors to vectors: the routing of Heinsen 2022 in its general form."""

from collections.abc import Callable

import torch
from torch import Tensor

from torchcaps.layers.vector_routing import Vectors, _BaseVectorRouting, _merge_masks
from torchcaps.parameters import Device, reset_children
from torchcaps.routing.vectors import Mask, Pairs, RoutedVectors, route_vectors


class GeneralVectorRouting(_BaseVectorRouting):
    """Heinsen 2022, the general form: four functions of your own say how children are scored, what they vote for, what
    parents predict of them, and how well. Votes are built.

    Args:
        score: A, from children to their score (a logit).
        vote: F, from children to their votes for each parent.
        predict: G, from parents to what each predicts of a child.
        compare: S, from children and predictions to the log-likelihood of each child under each prediction.
        in_caps: number of children; ``None`` for any number.
        out_caps: number of parents, at least 2.
        in_pose: numbers in a child; needed where the number of children is open, since betas are then linear maps.
        num_iters: iterations.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - vectors: ``(*b, in_caps, d)``; masks as in ``VectorRouting``.
        - score: ``(*b, i, d)`` to ``(*b, i)`` or ``(*b, i, 1)``; vote: ``(*b, i, d)`` to ``(*b, i, j, h)``.
        - predict: ``(*b, j, h)`` to ``(*b, j, d)``; compare: ``(*b, i, d)`` and ``(*b, j, d)`` to ``(*b, i, j)``.
        - result: ``(*b, out_caps, h)``; credit: ``(*b, in_caps, out_caps)``.

    Returns:
        The parents; with ``return_credit=True``, ``RoutedVectors`` of parents and credit.

    Example:
        >>> from torch import nn
        >>> layer = GeneralVectorRouting(
        ...     score=nn.Linear(4, 1),
        ...     vote=nn.Sequential(nn.Linear(4, 3 * 5), nn.Unflatten(-1, (3, 5))),
        ...     predict=nn.Linear(5, 4),
        ...     compare=lambda children, predicted: children @ predicted.mT / 2,
        ...     in_caps=7,
        ...     out_caps=3,
        ... )
        >>> layer(torch.randn(2, 7, 4)).shape
        torch.Size([2, 3, 5])
    """

    def __init__(
        self,
        score: Callable[[Tensor], Tensor],
        vote: Callable[[Tensor], Tensor],
        predict: Callable[[Tensor], Tensor],
        compare: Callable[[Tensor, Tensor], Tensor],
        in_caps: int | None,
        out_caps: int,
        *,
        in_pose: int | None = None,
        num_iters: int = 2,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_caps, in_pose, out_caps, num_iters)
        if in_caps is None and in_pose is None:
            raise ValueError("in_caps=None takes any number of children, whose betas are linear maps: give in_pose")
        self.score, self.vote, self.predict, self.compare = score, vote, predict, compare
        self._make_betas({"device": device, "dtype": dtype})
        self._draw_betas()

    def reset_parameters(self) -> None:
        """Draw all parameters anew, those of the four modules too where they know how."""
        reset_children(self)
        self._draw_betas()

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)}" for name in ("in_caps", "in_pose", "out_caps", "num_iters"))

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
            mask: which children there are: true or false, or shares from 0 to 1.
            pair_mask: which child may go to which parent; a child that may go to none is not there.
            return_credit: whether to return the credit as well.

        Returns:
            The parents, or parents and credit.
        """
        self._check(vectors)
        self._check_masks(vectors, mask, pair_mask)
        each = tuple(vectors.shape[:-1])
        score = self.score(vectors)
        score = score[..., 0] if tuple(score.shape) == (*each, 1) else score
        _check_result("score", score, each)
        votes = self.vote(vectors)
        _check_result("vote", votes[..., 0] if votes.ndim else votes, (*each, self.out_caps), "h")
        there = _merge_masks(vectors, mask, pair_mask)
        presence = score.sigmoid() if there is None else score.sigmoid() * there

        def mix(credit: Tensor) -> Tensor:
            return torch.einsum("...ij,...ijh->...jh", credit, votes)

        def compare(parents: Tensor) -> Tensor:
            found = self.compare(vectors, self.predict(parents))
            _check_result("compare", found, (*each, self.out_caps))
            return found

        use, ignore = self._betas(vectors)
        routed = route_vectors(presence, mix, compare, use, ignore, num_iters=self.num_iters, pairs=pair_mask)
        return self._return(routed, return_credit)


def _check_result(name: str, found: Tensor, wanted: tuple[int, ...], *more: str) -> None:
    if tuple(found.shape) != wanted:
        expected = ", ".join(map(str, (*wanted, *more)))
        got = ", ".join(map(str, (*found.shape, *more)))
        raise ValueError(f"{name} returned a tensor of shape ({got}); expected ({expected})")
