"""What all capsule layers share: vote weights, a routing, and the norm of votes."""

import torch
from torch import Tensor, nn

from torchcaps import routing as routings
from torchcaps.capsules import Capsules, Pose, pose_shape
from torchcaps.norms import Per, PoseNorm
from torchcaps.parameters import Device, Factory, reset_children
from torchcaps.routing import Routing, Trace, VoteShape
from torchcaps.votes import Votes
from torchcaps.votes.norm import NormAxes, VoteNorm


class CapsuleLayer(nn.Module):
    """What all capsule layers share: vote weights, a routing, and the way from capsules to capsules.

    Args:
        in_caps: child capsules, of each position where there is a grid; ``None`` for any number.
        in_pose: pose of a child, an int for a vector or ``(rows, columns)`` for a matrix.
        out_caps: parent capsules, of each position where there is a grid; ``None`` for as many as children.
        out_pose: pose of a parent; of as many rows as a child's.
        routing: a name (``tc.routing.ROUTINGS``, or ``package.module:Class``), a class, or an instance of its own.
        field: children that a parent sees; ``None`` for any number.
        bias: whether votes have a bias; left out, as the routing's paper has it.
        vote_norm: batch norm between votes and routing (Zhao 2020): of each pose ``"component"``, of each ``"pair"`` of
            capsules, or none.
        pose_norm: batch norm of the parents' poses (``PoseNorm``): of each ``"component"`` of each type, of each
            ``"type"``, or none.
        convolutional: whether the layer is a convolution.
        places: positions that the children of a parent lie at, each with weights of its own.
        types: types of children with weights of their own, where any number of children is seen.
        device: where the parameters are made.
        dtype: number type of the parameters.
    """

    weight: nn.Parameter
    bias: nn.Parameter | None
    offset: nn.Parameter | None  # of layers with as many parents as children

    def __init__(
        self,
        in_caps: int | None,
        in_pose: Pose,
        out_caps: int | None,
        out_pose: Pose,
        routing: str | type[Routing] | Routing,
        *,
        field: int | None,
        bias: bool | None,
        vote_norm: NormAxes | None,
        pose_norm: Per | None = None,
        convolutional: bool = False,
        places: int = 1,
        types: int = 1,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.rows, self.columns = pose_shape(in_pose, "in_pose")
        out_rows, self.out_columns = pose_shape(out_pose, "out_pose")
        if self.rows != out_rows:
            raise ValueError(
                f"votes keep the rows of a pose: children of {in_pose} cannot vote for parents of {out_pose}; "
                f"give parents of {self.rows} rows"
            )
        self.in_caps, self.in_pose, self.out_caps, self.out_pose = in_caps, in_pose, out_caps, out_pose
        size = self.rows * self.out_columns
        self.vote_shape = VoteShape(
            field,
            out_caps,
            size,
            self.columns,
            field or types,
            convolutional=convolutional,
            in_pose=self.rows * self.columns,
            places=places,
            types=types,
        )
        self.routing = routings.create(routing)
        self.routing.attach(self.vote_shape)
        self.routing.to(device=device, dtype=dtype)
        self.with_bias = self.routing.vote_bias if bias is None else bias
        self.vote_norm = None
        if vote_norm is not None:
            self.vote_norm = VoteNorm(vote_norm, field, out_caps, size, device=device, dtype=dtype)
        self.pose_norm = None
        if pose_norm is not None:
            if out_caps is None:
                raise ValueError(f"pose_norm={pose_norm!r} needs a fixed number of parents; got out_caps=None")
            self.pose_norm = PoseNorm(out_caps, out_pose, per=pose_norm, device=device, dtype=dtype)

    def _make_weights(self, leading: tuple[int, ...], factory: Factory) -> None:
        """Weights ``(*leading, d, h)`` and the bias ``(*leading, c, h)``, not yet drawn."""
        self.weight = nn.Parameter(torch.empty(*leading, self.columns, self.out_columns, **factory))
        self.register_parameter("bias", None)
        self.register_parameter("offset", None)
        if self.with_bias:
            self.bias = nn.Parameter(torch.empty(*leading, self.rows, self.out_columns, **factory))

    def reset_parameters(self) -> None:
        """Draw all parameters anew: weights as the routing's authors have them, biases and the routing's own zero."""
        self._draw()
        reset_children(self)

    def _draw(self) -> None:
        self.routing.draw_weights(self.weight, self.vote_shape)
        if self.bias is not None:
            nn.init.zeros_(self.bias)
        if self.offset is not None:
            nn.init.normal_(self.offset)

    def extra_repr(self) -> str:
        sizes = ("in_caps", "in_pose", "out_caps", "out_pose")
        return ", ".join([*(f"{name}={getattr(self, name)}" for name in sizes), f"bias={self.with_bias}"])

    def votes(self, capsules: Capsules) -> Votes:
        """The votes of these capsules, before any routing.

        Args:
            capsules: the children.

        Returns:
            Votes, as an operator.
        """
        raise NotImplementedError

    def forward(self, capsules: Capsules, *, trace: Trace | None = None) -> Capsules:
        """Route the children to the parents.

        Args:
            capsules: the children.
            trace: filled with what each iteration comes to.

        Returns:
            The parents.
        """
        return self._finish(self.routing(self._normed_votes(capsules), capsules.score, trace=trace))

    def step(self, children: Capsules, parents: Capsules | None = None, *, trace: Trace | None = None) -> Capsules:
        """One step from the parents of the step before, for ``concurrent_routing`` of routings that are ``stepwise``.

        Args:
            children: the children.
            parents: the parents of the step before; ``None`` the first time.
            trace: filled with what the step comes to.

        Returns:
            The parents of this step.
        """
        return self._finish(self.routing.step(self._normed_votes(children), children.score, parents, trace=trace))

    def _finish(self, parents: Capsules) -> Capsules:
        return parents if self.pose_norm is None else self.pose_norm(parents)

    def _normed_votes(self, capsules: Capsules) -> Votes:
        votes = self.votes(capsules)
        return votes if self.vote_norm is None else self.vote_norm(votes)


def _at_least_single(tensor: Tensor) -> torch.dtype:
    """The number type that routing works in."""
    return torch.promote_types(tensor.dtype, torch.float32)
