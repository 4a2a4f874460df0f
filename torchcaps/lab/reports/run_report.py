"""The page of one run: everything that a person wants to see of it, in one file."""

from pathlib import Path

import torch

from torchcaps.data.base import choose_evenly
from torchcaps.lab.evaluation import Evaluation, evaluate
from torchcaps.lab.recipes import build_loss
from torchcaps.lab.reports.capsule_sections import capsule_sections
from torchcaps.lab.reports.diagnosis import diagnosis_section
from torchcaps.lab.reports.page import page, write
from torchcaps.lab.reports.sections import classes_section, confusion_section, header, learning_curves, most_wrong
from torchcaps.lab.training import Run
from torchcaps.models import count_parameters

MOST_EXAMPLES = 10_000


def run_report(run: Run, most_examples: int = MOST_EXAMPLES) -> Path:
    """Write ``report.html`` into the run's folder. Just after training it shows the test of the training; otherwise the
    test examples are evaluated for it, evenly chosen ones if there are more than ``most_examples``."""
    model, loader, loss = run.model(), run.loader("test"), build_loss(run.recipe)
    numbers = choose_evenly(most_examples, len(loader))
    steps = [int(line["step"]) for line in run.metrics() if "step" in line]
    # The random state is a training loop's too, and it is nobody's business here.
    with torch.random.fork_rng(devices=[]):
        step = max(steps, default=0)
        if run.tested is not None:
            logits, label = (tensor[numbers] for tensor in run.tested)
            found = Evaluation(loader.classes, logits, label, loss, step)
        else:
            found = evaluate(model, loader, loss, indices=numbers, step=step)
        parts = [
            header(run, found, run.record(), count_parameters(model)),
            learning_curves(run),
            most_wrong(found, run.examples("test"), numbers),
            *capsule_sections(model, loader, found, numbers),
            confusion_section(found),
            classes_section(found),
            diagnosis_section(run),
            _footer(len(numbers), len(loader)),
        ]
    return write(run.folder / "report.html", page(f"{run.recipe.name}: report of a run", parts))


def _footer(evaluated: int, there: int) -> str:
    some = f" Figures are of {evaluated:,} of {there:,} test examples, evenly chosen." if evaluated < there else ""
    return f"<footer>Written by torchcaps; this file needs nothing but itself.{some}</footer>"
