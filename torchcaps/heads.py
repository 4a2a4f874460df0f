"""Class capsules -> logits, one for each class; and a sequence of vectors -> logits."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps.capsules import Capsules, check_capsules, check_sizes
from torchcaps.layers import VectorRouting
from torchcaps.parameters import Device, Factory, Resettable
from torchcaps.routing.vectors import Mask, RoutedVectors, combine_credit

Logits = Float[Tensor, "*b k"]


class ScoreHead(nn.Module):
    """The score of each class capsule is the logit of its class.

    Shape:
        - capsules: scores ``(*b, k)`` of ``k`` classes; the result has the same shape.

    Returns:
        The logits.

    Example:
        >>> ScoreHead()(Capsules(torch.zeros(2, 10, 16), torch.zeros(2, 10))).shape
        torch.Size([2, 10])
    """

    def forward(self, capsules: Capsules) -> Logits:
        """The logits of class capsules.

        Args:
            capsules: class capsules with scores.

        Returns:
            A logit for each class.
        """
        check_capsules(capsules, type(self).__name__)
        if capsules.score is None:
            raise ValueError("these class capsules have no score; give the network the linear head, which reads poses")
        return capsules.score


class LinearHead(Resettable):
    """One linear map of the pose, shared by all classes, makes the logit (Tsai 2020).

    Args:
        in_pose: numbers in the pose of a class capsule.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - capsules: poses ``(*b, k, in_pose)`` of ``k`` classes.
        - result: ``(*b, k)``.

    Returns:
        The logits.

    Example:
        >>> LinearHead(16)(Capsules(torch.zeros(2, 10, 16))).shape
        torch.Size([2, 10])
    """

    def __init__(self, in_pose: int, *, device: Device = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        check_sizes(in_pose=in_pose)
        self.linear = nn.Linear(in_pose, 1, device=device, dtype=dtype)

    def forward(self, capsules: Capsules) -> Logits:
        """The logits of class capsules.

        Args:
            capsules: class capsules.

        Returns:
            A logit for each class.
        """
        check_capsules(capsules, type(self).__name__)
        return self.linear(capsules.pose.to(self.linear.weight.dtype))[..., 0]


class VectorRoutingHead(Resettable):
    """Heinsen 2022: three vector routings, from any number of vectors to parts, to parts again, and to one number for
    each class.

    Args:
        in_pose: numbers in a vector.
        classes: number of classes, at least 2.
        caps: parts, of either layer, at least 2.
        pose: numbers in a part; as many as in a vector if left out.
        num_iters: iterations of each routing.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - vectors: ``(*b, i, in_pose)``; mask: ``(*b, i)``.
        - result: ``(*b, k)`` for ``k`` classes.

    Returns:
        The logits.

    Example:
        >>> head = VectorRoutingHead(16, classes=5, caps=4)
        >>> head(torch.randn(2, 7, 16)).shape, head.credit(torch.randn(2, 7, 16)).shape
        (torch.Size([2, 5]), torch.Size([2, 7, 5]))
    """

    def __init__(
        self,
        in_pose: int,
        classes: int,
        *,
        caps: int = 64,
        pose: int | None = None,
        num_iters: int = 2,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_sizes(in_pose=in_pose, classes=classes, caps=caps, pose=pose)
        for name, parents in (("classes", classes), ("caps", caps)):
            if parents is None or parents < 2:
                raise ValueError(f"children choose between parents, so there are at least two; got {name}={parents}")
        inner, factory = pose or in_pose, Factory(device=device, dtype=dtype)
        self.routings = nn.ModuleList(
            [
                VectorRouting(None, in_pose, caps, inner, num_iters=num_iters, **factory),
                VectorRouting(caps, inner, caps, inner, num_iters=num_iters, **factory),
                VectorRouting(caps, inner, classes, 1, num_iters=num_iters, **factory),
            ]
        )

    def forward(self, vectors: Float[Tensor, "*b i d"], mask: Mask | None = None) -> Logits:
        """The logits of sequences of vectors.

        Args:
            vectors: the vectors.
            mask: which of them are there.

        Returns:
            A logit for each class.
        """
        for number, routing in enumerate(self.routings):
            vectors = routing(vectors, None if number else mask)
        return vectors[..., 0]

    def credit(self, vectors: Float[Tensor, "*b i d"], mask: Mask | None = None) -> Float[Tensor, "*b i k"]:
        """What each class credits each vector with, from end to end (``combine_credit``).

        Args:
            vectors: the vectors.
            mask: which of them are there.

        Returns:
            The credit: above 0 for the class, below 0 against it.
        """
        credits = []
        for number, routing in enumerate(self.routings):
            routed = routing(vectors, None if number else mask, return_credit=True)
            assert isinstance(routed, RoutedVectors)
            vectors = routed.vectors
            credits.append(routed.credit)
        return combine_credit(credits, mask=mask)
