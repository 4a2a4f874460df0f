"""From a network and a batch to what is wrong with it, and what to do."""

from dataclasses import dataclass, replace
from html import escape
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.lab.diagnosis.checks import CHECKS, find_all
from torchcaps.lab.diagnosis.findings import KINDS, SETTLED, Finding, Measurements, Outcome
from torchcaps.lab.diagnosis.measuring import (
    LabelStatistics,
    PartGradient,
    measure_capsules,
    measure_inputs,
    measure_iterations,
    measure_labels,
    measure_losses,
    measure_parts,
    weigh_reconstruction,
)
from torchcaps.lab.diagnosis.subject import (
    NewOptimizer,
    Subject,
    as_batch,
    batch_norms,
    last_routing,
    predict,
    suited_loss,
    undisturbed,
)
from torchcaps.lab.diagnosis.trials import Trial, learn_by_heart, sweep_rates, use_adam
from torchcaps.lab.loaders import ModelBatch
from torchcaps.lab.tracing.networks import describe, evaluating, require_capsules, takes_images
from torchcaps.losses import ClassificationLoss, target_rows
from torchcaps.models import Model

EXAMPLES, FEW = 64, 16  # that capsules are measured on, and that are learned by heart
STEPS, RANGE_STEPS = 150, 30
LOWEST_RATE, HIGHEST_RATE = 1e-6, 10.0
RATES = (3e-3, 1e-2)  # with which a batch is learned by heart: one of them has to do
LEARNED = 0.9  # of what a constant answer leaves: enough to try no other rate


@dataclass(frozen=True)
class Diagnosis:
    """What a network suffers from, and all that was measured. A notebook displays it; ``print`` shows it as text."""

    name: str
    findings: tuple[Finding, ...]
    measurements: Measurements
    skipped: tuple[str, ...] = ()  # what could not be measured, and why

    @property
    def healthy(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    @property
    def causes(self) -> tuple[Finding, ...]:
        """The findings of the first kind that there are any of: what is wrong with the data explains the network, and
        what is wrong with the network explains its answers."""
        first = min((KINDS.index(finding.check.kind) for finding in self.findings), default=0)
        return tuple(finding for finding in self.findings if finding.check.kind == KINDS[first])

    def follows(self, finding: Finding) -> bool:
        """Whether a finding may be no more than the consequence of another."""
        return finding not in self.causes

    def __str__(self) -> str:
        lines = [f"{self.name}: {summarize(self)}"]
        for finding in self.findings:
            after = " (may follow from the others)" if self.follows(finding) else ""
            lines += [f"- {finding.name}{after}: {finding}", f"  {finding.page}"]
        return "\n".join([*lines, *(f"not checked: {reason}" for reason in self.skipped)])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td><a href='{escape(finding.page)}'>{escape(finding.name)}</a></td><td>{escape(finding.where)}</td>"
            f"<td>{escape(finding.check.symptom)} ({escape(finding.reading)})</td>"
            f"<td>{escape(finding.check.remedy)}</td></tr>"
            for finding in self.findings
        )
        head = "<tr><th>finding</th><th>where</th><th>measured</th><th>remedy</th></tr>"
        shown = f"<table>{head}{rows}</table>" if rows else ""
        return f"<div><p><b>{escape(self.name)}</b>: {escape(summarize(self))}</p>{shown}</div>"


def summarize(found: Diagnosis) -> str:
    """The result in a few words."""
    count = sum(any(True for _ in check.values(found.measurements)) for check in CHECKS)
    if found.healthy:
        return f"nothing found in {count} checks"
    return f"{len(found.findings)} {'finding' if len(found.findings) == 1 else 'findings'} in {count} checks"


def diagnose(
    model: nn.Module,
    batch: ModelBatch | tuple[Tensor, Tensor],
    *,
    loss: ClassificationLoss | None = None,
    reconstruction: float = 0.0,
    lr: float | None = None,
    step: int = 0,
    trials: bool = True,
    optimizer: NewOptimizer = use_adam,
) -> Diagnosis:
    """Why a network does not learn, measured on one batch of labeled examples.

    Neither the model nor the random state changes: all work is done on copies. A model that was trained for fewer than
    100 steps is examined after a copy of it has learned a few examples by heart, because capsules at the start are
    small and even in healthy networks too.

    Args:
        model: a network of the registry, or any module with ``DenseCapsules``, ``ConvCapsules`` or ``ClassCapsules``.
        batch: inputs and labels, at best a hundred or more: ``(inputs, labels)``.
        loss: what the network is trained with; the loss that suits its class capsules if left out.
        reconstruction: weight of the reconstruction loss, for networks with a decoder.
        lr: the learning rate to compare with those at which the loss falls and rises.
        step: steps for which the model was trained.
        trials: whether to train copies for a few seconds: learning rates, and a few examples by heart.
        optimizer: makes the optimizer of these trials from a module and a learning rate; Adam if left out.

    Returns:
        The findings, each with its remedy, and all measurements.

    Example:
        >>> import torchcaps as tc
        >>> net = nn.Sequential(tc.SquashedPrimaryCapsules(1, 2, 8), tc.ClassCapsules(2, 8, 3, 8, "dynamic"))
        >>> images, labels = torch.randint(256, (8, 1, 12, 12)), torch.arange(8) % 3
        >>> [finding.name for finding in diagnose(net, (images.float(), labels), trials=False).causes]
        ['input-range']
    """
    given = as_batch(model, batch)
    subject = Subject(model, given, loss or suited_loss(model, given.label), reconstruction, step)
    return examine(subject, lr=lr, trials=trials, optimizer=optimizer)


def examine(
    subject: Subject,
    *,
    lr: float | None = None,
    trials: bool = True,
    optimizer: NewOptimizer = use_adam,
    fresh: nn.Module | None = None,
    **known: Any,
) -> Diagnosis:
    """All measurements of a subject, and what they say. ``fresh`` is the network as it was before training, which the
    trials are made with; ``known`` are further fields of ``Measurements``."""
    with undisturbed():
        found, skipped = measure_data(subject)
        found = replace(found, step=subject.step, lr=lr, **known)
        if not skipped:
            learned = None
            if trials:
                start = replace(subject, model=subject.model if fresh is None else fresh)
                found, learned = try_learning(found, take(start, FEW), optimizer)
            found = measure_network(found, subject, learned)
            skipped = () if found.stages else (f"capsules: {describe(subject.model)} has none",)
    return Diagnosis(describe(subject.model), tuple(find_all(found)), found, skipped)


def measure_data(subject: Subject) -> tuple[Measurements, tuple[str, ...]]:
    """Inputs, labels and batch norm; and why nothing else can be measured, if so."""
    inputs = subject.batch.inputs[0]
    classes, is_image, skipped = 0, inputs.ndim == 4, []
    try:
        with torch.no_grad(), evaluating(subject.model):
            classes = predict(subject.model, take(subject, 1).batch).logits.shape[-1]
            is_image = takes_images(subject.model, inputs)
    except (RuntimeError, ValueError) as error:
        if not isinstance(subject.model, Model):
            require_capsules(subject.model)  # the first thing to say of a module without any
        skipped.append(f"the network does not take these inputs: {' '.join(str(error).split())[:200]}")
    found = measure_batch(subject, classes, is_image)
    if found.inputs.not_finite or found.labels.outside:
        skipped.append("the network: the batch cannot be learned from")
    return found, tuple(skipped)


def measure_batch(subject: Subject, classes: int, is_image: bool) -> Measurements:
    """Inputs, labels and batch norm, without a call of the network; 0 classes are unknown ones."""
    inputs, label = subject.batch.inputs[0], subject.batch.label
    labels = LabelStatistics(len(label), classes, 0.0, None)
    if classes:
        labels = measure_labels(inputs, label, classes, is_image)
    norms = any(True for _ in batch_norms(subject.model))
    return Measurements(measure_inputs(inputs, is_image), labels, batch_size=len(label), batch_norm=norms)


def try_learning(found: Measurements, start: Subject, optimizer: NewOptimizer) -> tuple[Measurements, Subject | None]:
    """Short trainings of copies; the measurements with them, and the copy that learned best, if it is finite."""
    rates = sweep_rates(start.copy(), LOWEST_RATE, HIGHEST_RATE, RANGE_STEPS, optimizer)
    tried: list[tuple[Trial, Subject]] = []
    for lr in RATES:
        twin = start.copy()
        tried.append((learn_by_heart(twin, lr, STEPS), twin))
        if tried[-1][0].lead > LEARNED:
            break
    trial, twin = max(tried, key=lambda each: each[0].lead)
    finite = all(bool(weight.isfinite().all()) for weight in twin.model.parameters())
    return replace(found, rates=rates, by_heart=trial), twin if finite else None


def measure_network(found: Measurements, subject: Subject, learned: Subject | None) -> Measurements:
    """Capsules, couplings, gradients and answers: as the network is if it is trained, or a copy that has learned a few
    examples; gradients by iteration always as it is."""
    given = take(subject, EXAMPLES).copy()
    examined = given if learned is None or subject.step >= SETTLED else replace(given, model=learned.model)
    losses = measure_losses(examined)
    found = replace(
        found,
        losses=losses,
        settled=subject.step >= SETTLED or learned is not None,
        reconstruction=weigh_reconstruction(given, losses.chance),
        parts=_compare_parts(measure_parts(examined), measure_parts(given)),
        outcome=count_answers(subject if learned is None or subject.step >= SETTLED else learned),
    )
    if last_routing(subject.model) is None:
        return found
    stages, layers = measure_capsules(examined)
    gradients = measure_iterations(given)
    layers = [replace(layer, gradients=each) for layer, each in zip(layers, gradients, strict=True)]
    return replace(found, stages=tuple(stages), layers=tuple(layers))


def _compare_parts(examined: list[PartGradient], given: list[PartGradient]) -> tuple[PartGradient, ...]:
    sizes = {part.name: part.size for part in given}
    return tuple(replace(part, size_as_given=sizes[part.name]) for part in examined)


@torch.no_grad()
def count_answers(subject: Subject) -> Outcome | None:
    """What the network says of all examples of the batch; ``None`` where they have several labels."""
    if subject.batch.label.ndim != 1:
        return None
    with evaluating(subject.model):
        pieces = range(0, len(subject.batch.label), EXAMPLES)
        logits = [predict(subject.model, subject.batch.part(start, start + EXAMPLES)).logits for start in pieces]
    answers = subject.loss.decide(torch.cat(logits).float())
    truth = target_rows(subject.batch.label, answers.float()) > 0.5
    columns = (truth, truth & answers, answers)
    labels, hits, given = (tuple(column.sum(0).tolist()) for column in columns)
    return Outcome(len(truth), int((truth == answers).all(-1).sum()), labels, hits, given)


def take(subject: Subject, count: int) -> Subject:
    """The same with so many examples, evenly over the batch."""
    total = len(subject.batch.label)
    if total <= count:
        return subject
    rows = torch.arange(count, device=subject.batch.label.device) * total // count
    return replace(subject, batch=subject.batch._each(lambda tensor: tensor[rows]))
