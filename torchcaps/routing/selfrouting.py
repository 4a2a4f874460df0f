"""Self-routing: Hahn, Pyeon and Kim, *Self-Routing Capsule Networks*, NeurIPS 2019."""

import math
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps.capsules import Capsules
from torchcaps.kernels.few import score_shares
from torchcaps.kernels.functions import Kernel, apply_kernel
from torchcaps.kernels.library import take_kernels
from torchcaps.routing.base import Routing, Trace, VoteShape, check_tensor, log_presence
from torchcaps.votes import Votes, tensor_votes
from torchcaps.votes.blocks import Asks
from torchcaps.votes.built import BlockVotes
from torchcaps.votes.children import map_children

LogitsFrom = Literal["poses", "votes"]
"""What the routing logits are made of: the children's poses, or votes of one number, which then are the logits."""


def self_routing(
    votes: Votes | Float[Tensor, "*b i j p"],
    score: Float[Tensor, "..."] | None,
    *,
    logits: Float[Tensor, "*b i j"],
    trace: Trace | None = None,
) -> Capsules:
    """Route each child by itself: its couplings are the softmax of logits of its own, whatever the other children vote
    (Hahn 2019). There is nothing to iterate.

    A parent's presence is what it wins of the presence that its rivals at the same position and itself win together,
    so presences sum to one over these parents; its pose is the mean of the votes that it wins.

    Args:
        votes: an operator, or a tensor of votes.
        score: presence logits of the children; ``None`` means that all are there.
        logits: logits of the couplings, such as ``W x_i + b``; -∞ keeps a child from a parent.
        trace: filled with the result.

    Shape:
        - votes: ``(*b, i, j, p)``; score: ``(*b, i)``; logits: ``(*b, i, j)``.
        - result: poses ``(*b, j, p)``, scores ``(*b, j)``.

    Returns:
        The parents.

    Example:
        >>> self_routing(torch.randn(2, 7, 3, 5), None, logits=torch.randn(2, 7, 3)).presence.shape
        torch.Size([2, 3])
    """
    operator = tensor_votes(votes)
    expected = (*operator.batch_shape, operator.children, operator.parents)
    check_tensor(logits, expected, "logits")
    if logits.shape != expected:
        raise ValueError(f"logits of shape {tuple(logits.shape)}; expected {expected}, one for each pair of capsules")

    def route(votes: BlockVotes, score: "Tensor | None", logits: Tensor) -> "tuple[Tensor, ...]":
        # a_i c_ij, as shares of the parent's mass
        share, log_mass = votes.split_log_mass(logits, None if score is None else log_presence(score))
        pose, parent_score = votes.mix(share), share_score(log_mass.squeeze(-1))
        if trace is not None:
            lowest = torch.finfo(logits.dtype).min / 16  # a child that is kept from all parents has equal logits
            coupling = votes.compete(logits.clamp_min(lowest)).masked_fill(logits == float("-inf"), 0.0)
            trace.record(operator, coupling, pose, parent_score)
        return pose, parent_score

    children = operator.of_children(score)
    asks = Asks.ONE_SUM if trace is None else Asks.ANYTHING
    pose, parent_score = operator.run(route, per_example=[children, logits], whole=trace is not None, asks=asks)
    return Capsules(pose, parent_score)


def share_score(log_mass: Float[Tensor, "*b j"]) -> Float[Tensor, "*b j"]:
    """The logit of each parent's share of the mass of all, ``log m_j - log Σ_{k≠j} m_k``; a parent without rivals is as
    sure as the number type can say.

    >>> share_score(torch.tensor([0.1, 0.9]).log()).sigmoid()
    tensor([0.1000, 0.9000])
    """
    return apply_kernel(_SHARE_SCORE, log_mass) if take_kernels(log_mass) else _share_score(log_mass)


def _share_score(log_mass: Float[Tensor, "*b j"]) -> Float[Tensor, "*b j"]:
    log_share = log_mass.log_softmax(-1)
    # Beside its rivals each parent counts as next to nothing, so that even a parent alone has a rival.
    itself = math.log(torch.finfo(log_mass.dtype).tiny) * torch.eye(
        log_mass.shape[-1], dtype=log_mass.dtype, device=log_mass.device
    )
    return log_share - (log_share.unsqueeze(-2) + itself).logsumexp(-1)


_SHARE_SCORE = Kernel(
    lambda log_mass: score_shares(log_mass.contiguous()),
    lambda tensors, grads, wanted: [score_shares(tensors[0].contiguous(), grads[0].contiguous())],
    _share_score,
)


class SelfRouting(Routing):
    """Self-routing as a module: a linear map of each child's pose makes its logits (Hahn 2019).

    It reads the children's poses, which votes of a layer know (``Votes.child_poses``); votes that are given as a tensor
    need them, ``tensor_votes(votes, pose)``.

    Args:
        logits: what the logits are made of: the children's ``"poses"``, or the ``"votes"``: class capsules without
            poses of their own, as the paper's, have votes of one number, which are the logits.
        sizes: sizes of the votes, for a routing that is used without a layer; a layer gives its own.

    Shape:
        - votes: ``(*b, i, j, p)``; score: ``(*b, i)``.
        - result: poses ``(*b, j, p)``, scores ``(*b, j)``.

    Returns:
        The parent ``Capsules``.

    Example:
        >>> votes = tensor_votes(torch.randn(2, 7, 3, 5), pose=torch.randn(2, 7, 4))
        >>> SelfRouting(sizes=VoteShape(children=7, parents=3, pose=5, in_pose=4))(votes).score.shape
        torch.Size([2, 3])
    """

    title = "self-routing"
    paper = "Hahn, Pyeon and Kim, *Self-Routing Capsule Networks*, NeurIPS 2019. http://vision.snu.ac.kr/projects/self-routing"
    iterates = False
    by_agreement = False
    votes_score = False
    reads_poses = True
    competition = "field"
    primary = "batch_norm"
    suited_losses = ("nll", "cross_entropy", "binary_cross_entropy")

    def __init__(self, *, logits: LogitsFrom = "poses", sizes: VoteShape | None = None) -> None:
        super().__init__()
        if logits not in get_args(LogitsFrom):
            raise ValueError(f"no logits from {logits!r}; there are {' and '.join(map(repr, get_args(LogitsFrom)))}")
        self.logits: LogitsFrom = logits
        self.reads_poses = logits == "poses"
        self.vote_bias = logits == "votes"
        self._attach_given(sizes)

    def attach(self, shape: VoteShape) -> None:
        if self.logits == "votes" and shape.pose != 1:
            raise ValueError(f"votes that are logits are single numbers; got poses of {shape.pose}: give out_pose=1")
        super().attach(shape)
        if self.logits == "poses":
            pair = (shape.children or shape.types, shape.parents or 1)
            self.logit_weight = nn.Parameter(torch.zeros(*pair, shape.in_pose))
            self.logit_bias = nn.Parameter(torch.zeros(pair))

    def weight_std(self, shape: VoteShape) -> float:
        if self.logits == "votes":
            return 0.0  # as the logits of the other layers start
        return (2.0 / ((shape.parents or 1) * shape.pose * shape.columns)) ** 0.5  # the authors' code

    def draw_weights(self, weight: Tensor, shape: VoteShape) -> None:
        bound = 3.0**0.5 * self.weight_std(shape)
        nn.init.uniform_(weight, -bound, bound)

    def make_logits(self, votes: Votes) -> Float[Tensor, "*b i j"]:
        """The logits of the couplings.

        Args:
            votes: the votes, with the poses of the children if the logits are made of them.

        Returns:
            A logit for each pair of capsules.
        """
        if self.logits == "votes":
            return votes.tensor().squeeze(-1)
        shape, pose = self._attached(), votes.child_poses
        if pose is None:
            raise ValueError(
                "SelfRouting makes its logits of the children's poses, and a tensor of votes has none; give "
                "tensor_votes(votes, pose), or the logits to self_routing(votes, score, logits=logits)"
            )
        if pose.shape[-1] != shape.in_pose:
            raise ValueError(f"children with poses of {pose.shape[-1]} numbers; this routing is for {shape.in_pose}")
        weight, bias = self.logit_weight.to(pose.dtype), self.logit_bias.to(pose.dtype)
        if shape.parents is None:
            weight, bias = weight.expand(-1, votes.parents, -1), bias.expand(-1, votes.parents)
        return map_children(pose, weight, bias)

    def forward(
        self,
        votes: Votes | Float[Tensor, "*b i j p"],
        score: Float[Tensor, "..."] | None = None,
        *,
        trace: Trace | None = None,
    ) -> Capsules:
        self._attached()
        operator = tensor_votes(votes)
        return self_routing(operator, score, logits=self.make_logits(operator), trace=trace)
