"""Who competes for a child, by the native kernel: one call where PyTorch's operations go over all pairs a dozen times.

Only first derivatives: whoever differentiates twice takes the rules of ``competition.py``.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from torchcaps.kernels.library import CompetitionJob, run_on
from torchcaps.votes.competition import CompetitionRule

Pairs = Float[Tensor, "n q i j"]


class NativeCompetition:
    """A rule of competition by the native kernel.

    Args:
        rule: who competes.
        threads: threads of a call.
    """

    def __init__(self, rule: CompetitionRule, threads: int) -> None:
        self.rule, self.threads = rule, threads

    def share(self, logits: Pairs, orphan: bool) -> Pairs:
        """Couplings, as ``CompetitionRule.share`` makes them."""
        return _Share.apply(logits, self, orphan)

    def split(
        self, logits: Pairs, log_present: Float[Tensor, "n q i 1"] | None
    ) -> tuple[Pairs, Float[Tensor, "n q j 1"]]:
        """``split_mass`` of the logarithms of the couplings and the presences."""
        share, mass, *_ = _Split.apply(logits, log_present, self)
        return share, mass

    def run(self, logits: Float[Tensor, "n q j i"], *, orphan: bool = False, **tensors: Tensor | None) -> None:
        """Run the kernel, forward or with ``to_share`` backward; ``logits`` has the sizes in any case."""
        n, q, j, i = logits.shape
        tables, there = self.rule.tables, self.rule.there(i)
        if tables is None and there is None:  # positions are as good as examples
            n, q = n * q, 1
        job = CompetitionJob(examples=n, positions=q, parents=j, children=i, orphan=orphan, threads=self.threads)
        if tables is not None:
            job.places, (job.spots, job.watchers) = tables.child_of.shape[1], tables.seen_by.shape
            tensors |= {"child_of": tables.child_of, "seen_by": tables.seen_by}
        run_on("compete", job, logits.dtype, logits=logits, there=there, **tensors)


class _Share(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits: Pairs, competition: NativeCompetition, orphan: bool) -> Pairs:
        turned = logits.mT.contiguous()
        share, peak, total = torch.empty_like(turned), *_for_children(turned, 2)
        competition.run(turned, orphan=orphan, share=share, peak=peak, sum=total)
        ctx.save_for_backward(share)
        ctx.competition = competition
        return share.mT

    @staticmethod
    def backward(ctx, *grads: Tensor):
        (share,) = ctx.saved_tensors
        to_logits = torch.empty_like(share)
        ctx.competition.run(share, share=share, to_share=grads[0].mT.contiguous(), to_logits=to_logits)
        return to_logits.mT, None, None


class _Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits: Pairs, log_present: Tensor | None, competition: NativeCompetition) -> tuple[Tensor, ...]:
        turned = logits.mT.contiguous()
        share, mass = torch.empty_like(turned), turned.new_empty(*turned.shape[:3], 1)
        peak, total = _for_children(turned, 2)
        present = None if log_present is None else log_present.contiguous()
        competition.run(turned, present=present, share=share, mass=mass, peak=peak, sum=total)
        ctx.save_for_backward(turned, share, mass, peak, total)
        ctx.competition = competition
        return share.mT, mass

    @staticmethod
    def backward(ctx, *grads: Tensor):
        turned, share, mass, peak, total = ctx.saved_tensors
        to_logits = torch.empty_like(share)
        to_present = _for_children(share, 1)[0] if ctx.needs_input_grad[1] else None
        to_share, to_mass = grads[0].mT.contiguous(), grads[1].contiguous()
        ctx.competition.run(
            turned, share=share, mass=mass, peak=peak, sum=total, to_share=to_share, to_mass=to_mass,
            to_logits=to_logits, to_present=to_present,
        )  # fmt: skip
        return to_logits.mT, None if to_present is None else to_present.unsqueeze(-1), None


def _for_children(like: Float[Tensor, "n q j i"], count: int) -> Tensor:
    """Room for so many numbers of each child of each field."""
    n, q, _, i = like.shape
    return like.new_empty(count, n, q, i)
