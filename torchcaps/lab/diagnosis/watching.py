"""The cheap checks that a training makes by itself while it begins. They draw no random numbers, change no weights."""

from collections.abc import Callable
from dataclasses import replace

import torch

from torchcaps.lab.diagnosis.checks import CHECKS
from torchcaps.lab.diagnosis.diagnosis import measure_batch, take
from torchcaps.lab.diagnosis.findings import SETTLED, Finding, Measurements
from torchcaps.lab.diagnosis.measuring import measure_capsules, measure_chance, weigh_reconstruction
from torchcaps.lab.diagnosis.subject import Subject, last_routing
from torchcaps.lab.loaders import ModelBatch
from torchcaps.losses import ClassificationLoss
from torchcaps.models import Model
from torchcaps.models.base import device_of

FEW = 8  # examples whose capsules are looked at: once, so that it costs less than a step
# After so few steps, couplings may still be even and variances small in healthy networks.
EARLY = {check.name for check in CHECKS} - {"even-couplings", "variance-floor"}


class Watch:
    """Looks at the first batch of a training, and at the capsules after a hundred steps; what it finds first is said
    once, with remedies, and then it is silent.

    The network is called once, on a few examples at step 100. ``examples`` are those of one forward pass.
    """

    def __init__(
        self,
        model: Model,
        loss: ClassificationLoss,
        *,
        classes: int,
        examples: int,
        is_image: bool = True,
        reconstruction: float = 0.0,
        warn: Callable[[str], None],
    ) -> None:
        self.model, self.loss, self.reconstruction, self.warn = model, loss, reconstruction, warn
        self.classes, self.examples, self.is_image = classes, examples, is_image
        self.begun = self.silent = False

    def look(self, step: int, batch: ModelBatch) -> None:
        """Before a step: at the first batch that there is, and at the capsules if it is the one after a hundred."""
        if self.silent or step > SETTLED:
            return
        if self.begun and step < SETTLED:
            return
        subject = Subject(self.model, batch, self.loss, self.reconstruction, step)
        with torch.no_grad():
            found = self._see_data(subject) if not self.begun else self._see_capsules(subject)
        self.begun, self.silent = True, step >= SETTLED
        if findings := find_early(found):
            self.silent = True
            self.warn(advise(findings))

    def _see_data(self, subject: Subject) -> Measurements:
        found = measure_batch(subject, self.classes, self.is_image)
        if found.labels.outside:
            return found
        reconstruction = weigh_reconstruction(subject, measure_chance(subject, self.classes))
        return replace(found, batch_size=self.examples, reconstruction=reconstruction)

    def _see_capsules(self, subject: Subject) -> Measurements | None:
        if last_routing(self.model) is None:
            return None
        few = take(subject, FEW)
        stages, layers = measure_capsules(replace(few, batch=few.batch.to(device_of(self.model))))
        found = measure_batch(subject, self.classes, self.is_image)
        return replace(found, batch_size=self.examples, settled=True, stages=tuple(stages), layers=tuple(layers))


def find_early(found: Measurements | None) -> list[Finding]:
    """What cheap measurements say."""
    if found is None:
        return []
    return [finding for check in CHECKS if check.name in EARLY for finding in check.find(found)]


def advise(findings: list[Finding]) -> str:
    """A warning of these findings."""
    shown = "; ".join(f"{finding.name}: {finding} ({finding.page})" for finding in findings)
    return f"{shown}. `torchcaps doctor RUN` says more; --no-doctor says nothing"
