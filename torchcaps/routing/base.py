"""What the five routings have in common: their modules' interface, the record of a run, and checks of the input."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps.capsules import Capsules, log_sigmoid
from torchcaps.votes import Competition, Votes


@dataclass(frozen=True)
class Iteration:
    """What one iteration of a routing came to."""

    coupling: Float[Tensor, "*b i j"]
    pose: Float[Tensor, "*b j p"]
    score: Float[Tensor, "*b j"] | None


@dataclass
class Trace:
    """The iterations of a routing, in order: pass one as ``trace=`` and read it afterwards.

    A traced run keeps everything, so it takes the memory that other runs save.
    """

    iterations: list[Iteration] = field(default_factory=list)

    def record(self, votes: Votes, coupling: Tensor, pose: Tensor, score: Tensor | None) -> None:
        if torch._C._current_graph_task_id() != -1:  # a backward pass that routes again
            return
        *batch, children, parents, size = votes.shape

        def kept(tensor: Tensor, *shape: int) -> Tensor:
            return tensor.detach().to(votes.dtype).reshape(*batch, *shape)

        self.iterations.append(
            Iteration(
                kept(coupling.expand(*coupling.shape[:-1], parents), children, parents),
                kept(pose, parents, size),
                None if score is None else kept(score, parents),
            )
        )


@dataclass(frozen=True)
class VoteShape:
    """The sizes of the layer that a routing works in; ``None`` where the number is open."""

    children: int | None  # capsules that one parent sees
    parents: int | None
    pose: int  # numbers in a parent's pose
    columns: int  # columns of a child's pose
    fan_in: int  # weights that meet in one parent: children, or types of children where positions share weights
    convolutional: bool = False


class Routing(nn.Module):
    """Votes in, capsules out. A layer gives its routing its sizes once, by ``attach``; learned parameters, if the
    routing has any, are made then."""

    vote_bias: ClassVar[bool] = False  # whether the paper's votes have a bias
    competition: ClassVar[Competition] = "image"  # which parents compete for a child of a convolution
    suited_losses: ClassVar[tuple[str, ...]] = ("cross_entropy", "binary_cross_entropy")
    """Names of the losses (``torchcaps.losses.LOSSES``) that class capsules of this routing learn from, best first."""
    shape: VoteShape | None = None

    def attach(self, shape: VoteShape) -> None:
        """Make the parameters that depend on the layer's sizes."""
        if self.shape is not None:
            raise ValueError(f"this {type(self).__name__} belongs to another layer already; give each layer its own")
        self.shape = shape

    def weight_std(self, shape: VoteShape) -> float:
        """Standard deviation of the initial vote weights."""
        raise NotImplementedError

    def forward(
        self,
        votes: Votes | Float[Tensor, "*b i j p"],
        score: Float[Tensor, "..."] | None = None,
        *,
        trace: Trace | None = None,
    ) -> Capsules:
        raise NotImplementedError

    def _attached(self) -> VoteShape:
        if self.shape is None:
            raise ValueError(f"this {type(self).__name__} has no sizes yet; put it in a layer or call attach(...)")
        return self.shape


def check_iterations(num_iters: int) -> None:
    if num_iters < 1:
        raise ValueError(f"routing needs at least one iteration; got num_iters={num_iters}")


def check_broadcasts(tensor: Tensor | None, expected: tuple[int, ...], name: str) -> None:
    """The tensor must have the expected shape, or ones in place of some of its sizes."""
    if tensor is None:
        return
    fits = tensor.ndim == len(expected) and all(
        size in (1, wanted) for size, wanted in zip(tensor.shape, expected, strict=True)
    )
    if not fits:
        raise ValueError(f"{name} of shape {tuple(tensor.shape)}; expected {expected}, or 1 in place of any of them")


def log_presence(score: Float[Tensor, "*b i"]) -> Float[Tensor, "*b i 1"]:
    """The logarithm of each child's presence, far below that of any other child where it is absent, yet finite: a
    parent all of whose children are absent has a mean as well."""
    return log_sigmoid(score).clamp_min(torch.finfo(score.dtype).min / 4).unsqueeze(-1)


def split_mass(log_used: Float[Tensor, "*b i j"]) -> tuple[Float[Tensor, "*b i j"], Float[Tensor, "*b j 1"]]:
    """Each parent's children as shares of its mass, which sum to one, and the mass.

    In logarithms, since the mass of a parent that no child favors underflows, or the gradient of its inverse overflows,
    while its mean stays as well defined as any other.
    """
    log_mass = log_used.logsumexp(-2, keepdim=True)
    return (log_used - log_mass).exp(), log_mass.exp().mT
