"""What every run's page has: what was reached, the curves, the classes, the examples that went most wrong."""

import json
import shlex
from html import escape
from typing import Any

import torch
from torch import Tensor

from torchcaps.data import Dataset, TextDataset
from torchcaps.data.base import Examples
from torchcaps.data.sheet import caption
from torchcaps.lab.evaluation import Evaluation
from torchcaps.lab.recipes import to_json
from torchcaps.lab.reports.charts import Curve, line_chart
from torchcaps.lab.reports.page import absent, add_caption, facts, picture, pixels_wide, section, table, tiles
from torchcaps.lab.reports.results import percent
from torchcaps.lab.training import Run
from torchcaps.terminal import format_duration

MOST_WRONG, MOST_CLASSES, MOST_PAIRS = 18, 20, 12
KINDS = {"train": "training", "val": "validation", "test": "test"}


def header(run: Run, found: Evaluation, record: dict[str, Any] | None, parameters: int) -> str:
    """Recipe, claim and what was reached; then the circumstances."""
    recipe, claim = run.recipe, run.recipe.claim
    as_error = claim.metric == "error"
    value, (low, high) = (found.error, found.error_interval) if as_error else (found.accuracy, found.interval)
    name = "exact match" if found.multi_label and not as_error else claim.metric
    target = "–" if claim.target is None else f"{claim.target:g} %"
    notes = ", ".join(part for part in (claim.table, claim.note) if part)
    record = record or {}
    seconds = record.get("seconds")
    shown = tiles(
        [
            (f"test {name}", f"{percent(value)} %", f"95 % interval {percent(low)} to {percent(high)} %"),
            ("balanced accuracy", _share(found.balanced_accuracy), _majority(found)),
            (f"target {claim.metric}", target, notes),
            ("correct", f"{found.correct:,}", f"of {found.total:,}"),
            ("time", "–" if seconds is None else format_duration(float(seconds)), _steps(run, record)),
        ]
    )
    about = _about(run, record, parameters)
    config = escape(json.dumps(to_json(recipe), indent=1, ensure_ascii=False))
    whole = f"<details><summary>The whole recipe</summary><pre>{config}</pre></details>"
    return (
        f'<header><p class="above">torchcaps · report of a run</p><h1>{escape(recipe.name)}</h1>'
        f'<p class="faint">{escape(run.folder.name)}</p></header>\n{shown}\n'
        + section(
            "This run",
            "The command that made it, and where.",
            _made_by(run),
            facts(about),
            f"<p>{whole}</p>",
        )
    )


def _majority(found: Evaluation) -> str:
    share = found.majority_share
    return "mean recall of the classes" if share is None else f"the largest class alone: {percent(share)} %"


def command_of(run: Run) -> str:
    """The command that trains the same again."""
    scale = [] if run.scale in ("", "paper") else ["--scale", run.scale]
    return shlex.join(["torchcaps", "train", run.recipe.name, *scale, *run.overrides])


def _made_by(run: Run) -> str:
    return f'<pre class="command">{escape(command_of(run))}</pre>'


def _steps(run: Run, record: dict[str, Any]) -> str:
    steps = record.get("steps") or max((int(line.get("step", 0)) for line in run.metrics()), default=0)
    return f"{steps:,} steps" if steps else ""


def _about(run: Run, record: dict[str, Any], parameters: int) -> list[tuple[str, str]]:
    recipe = run.recipe
    sizes = (record.get("data") or {}).get("sizes") or {}
    counts = ", ".join(f"{size:,} {KINDS.get(part, part)}" for part, size in sizes.items())
    data = recipe.data.train if not recipe.data.test else f"{recipe.data.train}, tested on {recipe.data.test}"
    machine = record.get("machine")
    return [
        ("model", f"{recipe.model_name}, {parameters:,} parameters"),
        ("data", f"{data} ({counts})" if counts else data),
        ("scale", run.scale),
        ("training", f"{recipe.optimizer.kind}, learning rate {recipe.optimizer.lr:g}, batches of {recipe.batch_size}"),
        ("loss", recipe.loss.kind.replace("_", " ") + (" + reconstruction" if recipe.loss.reconstruction else "")),
        ("seed", str(recipe.seed)),
        ("commit", str(record.get("commit") or "")),
        ("machine", _machine(machine or {})),
        ("torch", str(record.get("torch") or torch.__version__)),
    ]


def _machine(machine: dict[str, Any]) -> str:
    """A machine in a line."""
    words = [str(machine[name]) for name in ("system", "processor", "gpu") if machine.get(name)]
    words += [f"{machine[name]} {name}" for name in ("cores", "threads", "processes") if machine.get(name, 1) != 1]
    return ", ".join(words)


def learning_curves(run: Run) -> str:
    """Loss and accuracy over the steps, of training and of examples that were not trained on."""
    lines = run.metrics()

    def curves(figure: str) -> list[Curve]:
        return [
            Curve(words, [(float(line["step"]), float(line[figure])) for line in lines if _has(line, kind, figure)])
            for kind, words in KINDS.items()
        ]

    if not any(_has(line, kind, "loss") for line in lines for kind in KINDS):
        return absent("Learning curves", "the run has not written any metrics.")
    loss = line_chart("Loss", "step", curves("loss"))
    accuracy = line_chart("Accuracy", "step", curves("accuracy"), share=True)
    about = "Training figures are of single batches, as they were trained on; the others are of whole sets."
    return section("Learning curves", about, f'<div class="charts">{loss}{accuracy}</div>')


def _has(line: dict[str, Any], kind: str, figure: str) -> bool:
    return line.get("kind") == kind and isinstance(line.get(figure), int | float) and "step" in line


def classes_section(found: Evaluation) -> str:
    """Recall and precision of every class, and calibration."""
    rows = [
        (one.name, f"{one.total:,}", f"{one.hit:,}", _share(one.recall), f"{one.said:,}", _share(one.precision))
        for one in found.per_class()
    ]
    about = (
        "Recall: the share of a class's examples that are predicted correctly. Precision: the share of the predictions "
        f"of a class that are correct. Calibration error {found.calibration_error():.4f}, Brier score "
        f"{found.brier():.4f}, mean loss {found.loss:.4f}."
    )
    shown = table(("class", "examples", "correct", "recall", "predicted", "precision"), rows, numbers=range(1, 6))
    if len(rows) > MOST_CLASSES:
        shown = f"<details><summary>All {len(rows)} classes</summary>{shown}</details>"
    return section("Class by class", about, shown)


def _share(share: float | None) -> str:
    return "–" if share is None else f"{percent(share)} %"


def confusion_section(found: Evaluation) -> str:
    """The confusion matrix; a list of the commonest confusions where it would be too large to read."""
    counts = found.confusion()
    if counts is None:
        return absent("Confusion matrix", "examples have several labels; the table of classes has their counts.")
    if len(found.classes) > MOST_CLASSES:
        about = f"{len(found.classes)} classes are too many for a matrix that can be read."
        return section("Commonest confusions", about, _pairs(found))
    about = "Rows are labels, columns are predictions. Blue is correct, red is wrong."
    return section("Confusion matrix", about, f'<div class="wide">{_matrix(found.classes, counts)}</div>')


def _matrix(classes: tuple[str, ...], counts: Tensor) -> str:
    long = " long" if max(map(len, classes)) > 4 else ""
    top = "".join(f'<th class="column{long}"><span>{escape(name)}</span></th>' for name in classes)
    lines = [f"<tr><th></th>{top}</tr>"]
    wrong = counts - torch.diag(counts.diag())
    worst = max(int(wrong.max()), 1)
    for row, name in enumerate(classes):
        cells = []
        for column, count in enumerate(counts[row].tolist()):
            right = row == column
            share = count / max(int(counts[row].sum()), 1) if right else count / worst
            kind = "none" if count == 0 else "right" if right else "wrong"
            cells.append(f'<td class="{kind}" style="--share:{share:.3f}">{count:,}</td>')
        lines.append(f'<tr><th class="row">{escape(name)}</th>{"".join(cells)}</tr>')
    return '<table class="confusion">' + "\n".join(lines) + "</table>"


def _pairs(found: Evaluation) -> str:
    rows = [(name, other, f"{count:,}") for name, other, count in found.list_confused(MOST_PAIRS)]
    return table(("label", "predicted as", "count"), rows, numbers=(2,)) if rows else "<p>None at all.</p>"


def most_wrong(found: Evaluation, examples: Examples[Any], numbers: Tensor) -> str:
    """Wrong answers with the highest loss. ``numbers`` are those of the evaluated examples in ``examples``."""
    wrong = (~found.right).nonzero()[:, 0]
    title = "Worst errors"
    if not len(wrong):
        return absent(title, f"all {found.total:,} examples are predicted correctly.")
    chosen = wrong[found.losses[wrong].argsort(descending=True)][:MOST_WRONG]
    about = (
        f"The {len(chosen)} of {len(wrong):,} wrong predictions with the highest loss: the prediction with its "
        "probability, and the label."
    )
    words = [_verdict(found, int(number)) for number in chosen]
    if isinstance(examples, TextDataset):
        texts = examples.batch(numbers[chosen]).tokens
        rows = [(" ".join(tokens), *verdict) for tokens, verdict in zip(texts, words, strict=True)]
        return section(title, about, table(("sentence", "predicted", "label"), rows))
    assert isinstance(examples, Dataset)
    images = examples.batch(numbers[chosen]).image
    figures = [
        add_caption(
            picture(image, f"predicted {said}, label {true}", height=88),
            f'<div style="width:{pixels_wide(image, 88)}px"><b>{escape(said)}</b><br>label: {escape(true)}</div>',
        )
        for image, (said, true) in zip(images, words, strict=True)
    ]
    return section(title, about, f'<div class="pictures">{"".join(figures)}</div>')


def _verdict(found: Evaluation, number: int) -> tuple[str, str]:
    decided, chances = found.decided[number], found.probabilities[number]
    said = " + ".join(f"{found.classes[k]} {100 * float(chances[k]):.0f} %" for k in decided.nonzero()[:, 0].tolist())
    return said or "nothing", caption(found.label[number], found.classes)
