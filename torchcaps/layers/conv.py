"""Parents on a grid, each with the children of a window."""

from math import prod

import torch

from torchcaps.capsules import Capsules, Pair, Pose, check_capsules, check_sizes
from torchcaps.layers.base import CapsuleLayer
from torchcaps.norms import Per
from torchcaps.parameters import Device, Factory
from torchcaps.routing import Routing
from torchcaps.votes import Competition, Votes, convolutional_votes
from torchcaps.votes.grid import Window
from torchcaps.votes.norm import NormAxes


class ConvCapsules(CapsuleLayer):
    """Maps of capsules to maps of capsules: every parent sees a field of the children's grid.

    Children in the padding are absent: they do not vote, whatever the routing, as if the parents at the border had
    smaller fields.

    Args:
        in_caps: child capsules of each position.
        in_pose: pose of a child, an int for a vector or ``(rows, columns)`` for a matrix.
        out_caps: parent capsules of each position.
        out_pose: pose of a parent; of as many rows as a child's.
        kernel_size: rows and columns of the field: one number for both, or a pair.
        stride: steps from field to field.
        routing: a name (``tc.routing.ROUTINGS``, or ``package.module:Class``), a class, or an instance of its own.
        padding: positions added on each side of the grid.
        dilation: steps from child to child within a field.
        competition: which parents share out a child: all that see it, at every position (``"image"``), or those of each
            receptive field alone (``"field"``); left out, as the routing's authors have it.
        bias: whether votes have a bias; left out, as the routing's paper has it.
        vote_norm: batch norm between votes and routing (Zhao 2020): of each pose ``"component"``, of each ``"pair"`` of
            capsules, or none.
        pose_norm: batch norm of the parents' poses (Hahn 2019): of each ``"component"`` of each type, of each
            ``"type"`` (Ribeiro 2020), or none.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - capsules: poses ``(*b, row, column, in_caps, in_pose)``, scores ``(*b, row, column, in_caps)`` or none.
        - result: poses ``(*b, row', column', out_caps, out_pose)``, scores likewise, with the grid of ``nn.Conv2d``.
        - weight: ``(*kernel_size, in_caps, out_caps, d, h)``; bias: ``(*kernel_size, in_caps, out_caps, c, h)``.

    Returns:
        The parent ``Capsules``.

    Example:
        >>> layer = ConvCapsules(8, (4, 4), 16, (4, 4), kernel_size=3, stride=2, routing="em")
        >>> layer(Capsules(torch.randn(2, 9, 9, 8, 16), torch.zeros(2, 9, 9, 8))).pose.shape
        torch.Size([2, 4, 4, 16, 16])
    """

    def __init__(
        self,
        in_caps: int,
        in_pose: Pose,
        out_caps: int,
        out_pose: Pose,
        kernel_size: Pair,
        stride: Pair = 1,
        routing: str | type[Routing] | Routing = "dynamic",
        *,
        padding: Pair = 0,
        dilation: Pair = 1,
        competition: Competition | None = None,
        bias: bool | None = None,
        vote_norm: NormAxes | None = None,
        pose_norm: Per | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_sizes(in_caps=in_caps, out_caps=out_caps)
        window = Window.of(kernel_size, stride, padding, dilation)
        if vote_norm == "pair" and any(window.padding):
            raise ValueError(
                f"vote_norm='pair' with padding={padding}: pairs at the border would have statistics of fewer votes; "
                f"give vote_norm='component' or padding=0"
            )
        factory: Factory = {"device": device, "dtype": dtype}
        super().__init__(
            in_caps, in_pose, out_caps, out_pose, routing, field=prod(window.kernel_size) * in_caps, bias=bias,
            vote_norm=vote_norm, pose_norm=pose_norm, convolutional=True, places=prod(window.kernel_size), **factory,
        )  # fmt: skip
        self.window = window
        self.competition: Competition = self.routing.competition if competition is None else competition
        self._make_weights((*window.kernel_size, in_caps, out_caps), factory)
        self._draw()

    def extra_repr(self) -> str:
        plain = Window.of(self.window.kernel_size)
        shown = [
            f"{name}={given}"
            for name, given, usual in zip(Window._fields, self.window, plain, strict=True)
            if name in ("kernel_size", "stride") or given != usual
        ]
        return ", ".join([super().extra_repr(), *shown, f"competition={self.competition!r}"])

    def votes(self, capsules: Capsules) -> Votes:
        """The votes of these capsules, before any routing.

        Args:
            capsules: a map of children.

        Returns:
            Votes of shape ``(*b, row', column', i, j, p)`` for the children ``i`` of each field, as an operator.
        """
        check_capsules(capsules, "ConvCapsules")
        return convolutional_votes(
            capsules.pose,
            self.weight,
            self.bias,
            stride=self.window.stride,
            padding=self.window.padding,
            dilation=self.window.dilation,
            rows=self.rows,
            competition=self.competition,
        )
