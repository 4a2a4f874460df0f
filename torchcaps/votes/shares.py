"""Who competes for a child, by the native kernel: one call where PyTorch's operations go over all pairs a dozen times.

Where someone differentiates twice, the rules of ``competition.py`` stand in.
"""

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from torchcaps.kernels.functions import differentiate
from torchcaps.kernels.library import CompetitionJob, run_on
from torchcaps.kernels.modes import are_batched
from torchcaps.votes.competition import CompetitionRule, split_log_mass, split_mass

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
        self, logits: Pairs, log_present: Float[Tensor, "n q i 1"] | None, *, in_logs: bool = False
    ) -> tuple[Pairs, Float[Tensor, "n q j 1"]]:
        """``BlockVotes.split_mass`` of logits, or ``split_log_mass``."""
        if torch.is_grad_enabled() and (
            logits.requires_grad or (log_present is not None and log_present.requires_grad)
        ):
            return _Split.apply(logits, log_present, self, in_logs)
        _, share, mass, *_ = self.run_split(logits, log_present, in_logs)
        return share.mT, mass

    def run_split(self, logits: Pairs, log_present: Tensor | None, in_logs: bool) -> tuple[Tensor, ...]:
        """Logits and shares ``(n, q, j, i)``, masses, and what is kept of each child."""
        turned = logits.mT.contiguous()
        n, q, j, i = turned.shape
        share, mass, of_child = torch.empty_like(turned), turned.new_empty((n, q, j, 1)), turned.new_empty((2, n, q, i))
        present = None if log_present is None else log_present.contiguous()
        self.run(turned, in_logs=in_logs, present=present, share=share, mass=mass, of_child=of_child)
        return turned, share, mass, of_child

    def split_plainly(
        self, in_logs: bool, logits: Pairs, log_present: Float[Tensor, "n q i 1"] | None
    ) -> tuple[Pairs, Float[Tensor, "n q j 1"]]:
        """The same in PyTorch's operations."""
        if in_logs:
            return split_log_mass(self.rule, logits, log_present)
        log_coupling = self.rule.log_share(logits)
        return split_mass(log_coupling if log_present is None else log_coupling + log_present)

    def run(
        self, logits: Float[Tensor, "n q j i"], *, orphan: bool = False, in_logs: bool = False,
        present: Tensor | None = None, share: Tensor | None = None, mass: Tensor | None = None,
        of_child: Float[Tensor, "2 n q i"] | None = None, to_share: Tensor | None = None,
        to_mass: Tensor | None = None, to_logits: Tensor | None = None, to_present: Tensor | None = None,
    ) -> None:  # fmt: skip
        """Run the kernel, forward or with ``to_share`` backward; ``logits`` has the sizes in any case."""
        n, q, j, i = logits.shape
        tables, there = self.rule.tables, self.rule.there(i)
        if tables is None and there is None:  # positions are as good as examples
            n, q = n * q, 1
        peak = None if of_child is None else of_child.data_ptr()
        total = None if peak is None else peak + n * q * i * logits.element_size()
        # All at once: small layers feel each field.
        job = CompetitionJob(
            n, q, j, i, 0, 0, 0, None, None, _address(there), orphan, in_logs, self.threads, logits.data_ptr(),
            _address(present), _address(share), _address(mass), peak, total, _address(to_share), _address(to_mass),
            _address(to_logits), _address(to_present),
        )  # fmt: skip
        if tables is not None:
            job.places, (job.spots, job.watchers) = tables.child_of.shape[1], tables.seen_by.shape
            job.child_of, job.seen_by = tables.child_of.data_ptr(), tables.seen_by.data_ptr()
        run_on("compete", job, logits.dtype)


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


class _Share(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits: Pairs, competition: NativeCompetition, orphan: bool) -> Pairs:
        turned = logits.mT.contiguous()
        n, q, _, i = turned.shape
        share, of_child = torch.empty_like(turned), turned.new_empty((2, n, q, i))
        competition.run(turned, orphan=orphan, share=share, of_child=of_child)
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
    def forward(
        ctx, logits: Pairs, log_present: Tensor | None, competition: NativeCompetition, in_logs: bool
    ) -> tuple[Tensor, ...]:
        turned, share, mass, of_child = competition.run_split(logits, log_present, in_logs)
        ctx.save_for_backward(logits, log_present, turned, share, mass, of_child)
        ctx.competition, ctx.in_logs = competition, in_logs
        return share.mT, mass

    @staticmethod
    def backward(ctx, *grads: Tensor):
        logits, log_present, turned, share, mass, of_child = ctx.saved_tensors
        wanted = ctx.needs_input_grad[:2]
        if torch.is_grad_enabled() or are_batched(grads):  # differentiated again, or for many gradients at once
            plain = partial(ctx.competition.split_plainly, ctx.in_logs)
            return *differentiate(plain, (logits, log_present), grads, wanted), None, None
        n, q, _, i = share.shape
        to_logits, to_present = torch.empty_like(share), share.new_empty((n, q, i, 1)) if wanted[1] else None
        to_share, to_mass = grads[0].mT.contiguous(), grads[1].contiguous()
        ctx.competition.run(
            turned, in_logs=ctx.in_logs, share=share, mass=mass, of_child=of_child, to_share=to_share,
            to_mass=to_mass, to_logits=to_logits, to_present=to_present,
        )  # fmt: skip
        return to_logits.mT, to_present, None, None
