"""The diagnosis of a run: from its model, its data and its log; kept in its folder, and a section of its report."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from html import escape
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

import torchcaps.models as models
from torchcaps.data.base import choose_evenly
from torchcaps.files import read_object, write_json
from torchcaps.lab.diagnosis import Diagnosis
from torchcaps.lab.diagnosis.diagnosis import count_answers, examine, summarize
from torchcaps.lab.diagnosis.findings import SETTLED
from torchcaps.lab.diagnosis.subject import Subject
from torchcaps.lab.loaders import Loader
from torchcaps.lab.recipes import build_loss, build_model
from torchcaps.lab.reports.charts import Curve, Range, line_chart, range_chart
from torchcaps.lab.reports.page import absent, section
from torchcaps.lab.training import Run
from torchcaps.lab.training.distributed import choose_device
from torchcaps.lab.training.optimizers import build_optimizer

FILE, FORMAT = "diagnosis.json", 1
EXAMPLES = 256  # of training, and as many of those that were not trained on
LAST_LINES = 5  # of the log, whose losses are averaged
TITLE = "Diagnosis"


def diagnose_run(
    run: Run,
    which: Literal["best", "last"] = "last",
    *,
    examples: int = EXAMPLES,
    trials: bool = True,
    device: str = "cpu",
) -> Diagnosis:
    """Why a run does not learn. The model is examined as it is now; what is tried is tried with one that has the
    weights of the start."""
    recipe, place = run.recipe, choose_device(device)
    lines = [line for line in run.metrics() if line.get("kind") == "train"]
    fresh = build_model(recipe).to(place)
    has_checkpoint = run.checkpoints.is_dir() and any(run.checkpoints.glob("step-*.safetensors"))
    model = run.model(which).to(place) if has_checkpoint or (run.folder / "model.safetensors").is_file() else fresh
    step = int(lines[-1]["step"]) if lines and model is not fresh else 0
    subject = Subject(model, _batch(run.loader("train"), examples, place), build_loss(recipe))
    subject = replace(subject, reconstruction=recipe.loss.reconstruction, step=step)
    other = run.loader("val" if recipe.data.val_size else "test")

    def new_optimizer(module: nn.Module, lr: float) -> torch.optim.Optimizer:
        return build_optimizer(module, replace(recipe.optimizer, lr=lr))

    return examine(
        subject,
        lr=recipe.optimizer.lr,
        trials=trials,
        optimizer=new_optimizer,
        fresh=fresh,
        batch_size=math.ceil(recipe.batch_size / recipe.grad_accum_steps),
        epochs=float(lines[-1]["epoch"]) if step else 0.0,
        logged_loss=sum(line["loss"] for line in lines[-LAST_LINES:]) / len(lines[-LAST_LINES:]) if step else None,
        validation=count_answers(replace(subject, batch=_batch(other, examples, place))) if step >= SETTLED else None,
    )


def _batch(loader: Loader, count: int, place: torch.device):
    return loader.batch(choose_evenly(count, len(loader))).to(place)


def write_diagnosis(run: Run, found: Diagnosis) -> Path:
    """Keep a diagnosis in the run's folder, for its report."""
    path = run.folder / FILE
    measured = asdict(found.measurements)
    described = {
        "format": FORMAT,
        "weights_sha256": _weights(run),
        "summary": summarize(found),
        "examined": _describe_examined(found),
        "skipped": list(found.skipped),
        "findings": [
            {
                "name": finding.name,
                "where": finding.where,
                "symptom": finding.check.symptom,
                "measured": finding.check.measured,
                "value": finding.value,
                "reading": finding.reading,
                "remedy": finding.check.remedy,
                "page": finding.page,
                "follows": found.follows(finding),
            }
            for finding in found.findings
        ],
        **{name: measured[name] for name in ("stages", "layers", "parts", "rates", "by_heart", "losses")},
    }
    write_json(path, described, indent=1)
    return path


def _describe_examined(found: Diagnosis) -> str:
    """Whose capsules the figures show."""
    measured = found.measurements
    if measured.step >= SETTLED or measured.by_heart is None:
        return f"Capsules and gradients are those of the model after {measured.step:,} steps."
    return (
        f"After {measured.step:,} steps a network is at its start, so capsules are those of a copy that has learned "
        f"{measured.by_heart.count} examples by heart; gradients by iteration are those of the model."
    )


def _weights(run: Run) -> str | None:
    """What tells the weights of a run from others; ``None`` while there are none."""
    try:
        return models.checksum(run.model("last").state_dict())
    except (ValueError, OSError):
        return None


def diagnosis_section(run: Run) -> str:
    """What was found, and figures of capsules, couplings and gradients; nothing for a run that was not examined."""
    path = run.folder / FILE
    if not path.is_file():
        return ""
    found = read_object(path, "format", "weights_sha256", "summary", "examined", "findings", "stages", "layers")
    if found["format"] != FORMAT or found["weights_sha256"] != _weights(run):
        return absent(TITLE, f"it is of another state of this run; `torchcaps doctor {run.folder}` makes a new one.")
    findings = _findings_table(found["findings"])
    charts = "".join(chart for chart in _charts(found) if chart)
    return section(
        TITLE, f"{found['summary'].capitalize()}. {found['examined']}", findings, f'<div class="charts">{charts}</div>'
    )


def _findings_table(findings: Sequence[dict[str, Any]]) -> str:
    if not findings:
        return ""
    rows = "".join(
        f'<tr><td><a href="{escape(each["page"])}">{escape(each["name"])}</a>'
        f"{'<br><span class=faint>may follow from the others</span>' if each['follows'] else ''}</td>"
        f"<td>{escape(each['where'])}</td><td>{escape(each['symptom'])}<br><span class=faint>"
        f"{escape(each['reading'])}</span></td><td>{escape(each['remedy'])}</td></tr>"
        for each in findings
    )
    head = "<tr><th>finding</th><th>where</th><th>symptom</th><th>remedy</th></tr>"
    return f'<div class="wide"><table>{head}{rows}</table></div>'


def _charts(found: dict[str, Any]) -> Iterable[str]:
    for stage in found["stages"]:
        bars = [
            Range(*each)
            for each in zip(stage["lowest_presence"], stage["mean_presence"], stage["highest_presence"], strict=True)
        ]
        if bars:
            yield range_chart(f"Presence of the {stage['name']}", "capsule", bars)
    yield _by_iteration("Entropy of the couplings (1: even)", found["layers"], "entropy")
    yield _by_iteration("Gradient in the vote weights, log₁₀", found["layers"], "gradients", logarithm=True)
    parts = [(float(number), _log(part["size"])) for number, part in enumerate(found["parts"], 1) if part["size"] > 0]
    if parts:
        yield line_chart("Gradient of each part, log₁₀", "part, from the input", [Curve("root mean square", parts)])
    trial, rates = found["by_heart"], found["rates"]
    if trial:
        points = [(float(step), accuracy) for step, accuracy in enumerate(trial["accuracies"])]
        title = f"{trial['count']} examples learned by heart"
        yield line_chart(title, "step", [Curve("accuracy", points)], share=True)
    if rates and rates["losses"]:
        start = rates["losses"][0]
        points = [(_log(rate), min(loss, 2 * start)) for rate, loss in zip(rates["rates"], rates["losses"])]  # noqa: B905
        yield line_chart("Loss while the learning rate rises", "learning rate, log₁₀", [Curve("loss", points)])


def _by_iteration(title: str, layers: Sequence[dict[str, Any]], name: str, *, logarithm: bool = False) -> str:
    curves = []
    for layer in layers:
        values = [(float(number), value) for number, value in enumerate(layer[name], 1)]
        if logarithm:
            values = [(number, _log(value)) for number, value in values if value > 0]
        curves.append(Curve(f"{layer['name']}, {layer['routing']}", values))
    return line_chart(title, "iterations", curves) if any(curve.points for curve in curves) else ""


def _log(value: float) -> float:
    return math.log10(value)
