"""Class capsules -> logits, one for each class."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps.capsules import Capsules, check_capsules, check_sizes
from torchcaps.parameters import Device, reset_children

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


class LinearHead(nn.Module):
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

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        reset_children(self)

    def forward(self, capsules: Capsules) -> Logits:
        """The logits of class capsules.

        Args:
            capsules: class capsules.

        Returns:
            A logit for each class.
        """
        check_capsules(capsules, type(self).__name__)
        return self.linear(capsules.pose.to(self.linear.weight.dtype))[..., 0]
