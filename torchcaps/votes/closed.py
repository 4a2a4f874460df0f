"""What parents win of children whose votes are in closed form, by the native kernel: neither features nor pairs are
ever in memory.

First derivatives come from the kernel, further ones from the plain computation.
"""

from collections.abc import Sequence

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from torchcaps.kernels.library import ClosedJob, run_on
from torchcaps.kernels.modes import are_batched
from torchcaps.votes.native import count_threads

Poses = Float[Tensor, "n q i c d"]
Features = Float[Tensor, "n q f i"]


def find_features(pose: Poses) -> Features:
    """The numbers of a pose, their products ``pose_cd pose_ce`` for ``d ≤ e``, and a one."""
    turned = rearrange(pose, "n q i c d -> n q c d i").contiguous()
    first, second = torch.triu_indices(turned.shape[-2], turned.shape[-2], device=pose.device)
    products = turned.index_select(-2, first) * turned.index_select(-2, second)  # n q c (d ≤ e) i
    one = turned.new_ones(()).expand_as(turned[:, :, 0, :1])
    return torch.cat([turned.flatten(2, 3), products.flatten(2, 3), one], 2)


def win_moments(
    pose: Poses, presence: Float[Tensor, "n q i"], theta: Float[Tensor, "n q j f"] | None
) -> Float[Tensor, "n q #j f"]:
    """The moments ``sum_i used_ij features_i`` of what each parent wins, ``used_ij = presence_i softmax_j(theta_j ·
    features_i)``; without ``theta``, of one parent who wins everything.

    Args:
        pose: the children's poses.
        presence: the children's presences.
        theta: what the features are multiplied with.

    Returns:
        The moments.
    """
    return _Win.apply(pose, presence, theta)


def _win_plainly(pose: Poses, presence: Tensor, theta: Tensor | None) -> Tensor:
    features = find_features(pose)
    if theta is None:
        return presence.unsqueeze(-2) @ features.mT
    return ((theta @ features).softmax(-2) * presence.unsqueeze(-2)) @ features.mT


def _plain_gradients(
    given: tuple[Tensor, Tensor, Tensor | None], wanted: Sequence[bool], grads: Sequence[Tensor], *, again: bool
) -> tuple[Tensor | None, ...]:
    with torch.enable_grad():
        # Aliases, so that the graph of this gradient ends at the inputs and goes on from there by autograd's own means.
        pose, presence, theta = (
            each if each is None else each.view_as(each) if again else each.detach().requires_grad_() for each in given
        )
        assert pose is not None
        assert presence is not None
        ends = [each for each, want in zip((pose, presence, theta), wanted, strict=True) if want and each is not None]
        found = iter(torch.autograd.grad(_win_plainly(pose, presence, theta), ends, grads, create_graph=again))
    return tuple(next(found) if want else None for want in wanted)


class _Win(torch.autograd.Function):
    @staticmethod
    def forward(ctx, pose: Poses, presence: Tensor, theta: Tensor | None) -> Tensor:
        n, q, _, c, d = pose.shape
        parents = 1 if theta is None else theta.shape[2]
        moments = pose.new_empty(n, q, parents, c * (d + d * (d + 1) // 2) + 1)
        _run(pose, presence, theta, moments)
        ctx.save_for_backward(pose, presence, theta)
        return moments

    @staticmethod
    def backward(ctx, *grads: Tensor):
        pose, presence, theta = ctx.saved_tensors
        again = torch.is_grad_enabled()  # someone will differentiate this gradient
        if again or are_batched(grads):
            return _plain_gradients((pose, presence, theta), ctx.needs_input_grad, grads, again=again)
        to_pose, to_presence = torch.empty_like(pose), torch.empty_like(presence)
        to_theta = None if theta is None else torch.empty_like(theta)
        _run(pose, presence, theta, grads[0], back=1, to_pose=to_pose, to_presence=to_presence, to_theta=to_theta)
        return to_pose, to_presence, to_theta


def _run(
    pose: Poses, presence: Tensor, theta: Tensor | None, moments: Tensor, back: int = 0, **more: Tensor | None
) -> None:
    n, q, i, c, d = pose.shape
    job = ClosedJob(
        examples=n * q, children=i, pose_rows=c, columns=d, parents=moments.shape[2],
        threads=count_threads(n * q * i * moments.shape[2] * c * d), back=back,
    )  # fmt: skip
    given = {"pose": pose, "presence": presence, "theta": theta, "moments": moments}
    packed = {name: None if each is None else each.contiguous() for name, each in given.items()}
    run_on("closed", job, pose.dtype, **packed, **more)
