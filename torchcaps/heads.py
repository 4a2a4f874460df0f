"""Class capsules -> logits, one for each class."""

from jaxtyping import Float
from torch import Tensor, nn

from torchcaps.capsules import Capsules, check_capsules, check_sizes

Logits = Float[Tensor, "*b k"]


class ScoreHead(nn.Module):
    """The score of each class capsule is the logit of its class."""

    def forward(self, capsules: Capsules) -> Logits:
        check_capsules(capsules, type(self).__name__)
        if capsules.score is None:
            raise ValueError("these class capsules have no score; give the network the linear head, which reads poses")
        return capsules.score


class LinearHead(nn.Module):
    """One linear map of the pose, shared by all classes, makes the logit (Tsai 2020).

    >>> import torch
    >>> LinearHead(16)(Capsules(torch.zeros(2, 10, 16))).shape
    torch.Size([2, 10])
    """

    def __init__(self, pose: int) -> None:
        super().__init__()
        check_sizes(pose=pose)
        self.linear = nn.Linear(pose, 1)

    def forward(self, capsules: Capsules) -> Logits:
        check_capsules(capsules, type(self).__name__)
        return self.linear(capsules.pose.to(self.linear.weight.dtype))[..., 0]
