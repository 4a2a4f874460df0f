"""The first table of the results page: what papers report, and what their networks reach at that size."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from reproduction.page import NOT_RUN, experiment
from reproduction.paper_size.train_queue import read_plan
from reproduction.paths import RecordPaths
from reproduction.plan import PLAN
from torchcaps.files import read_json
from torchcaps.lab.explanation.figures import drawing, use_log_scale
from torchcaps.lab.recipes import AnyRecipe, configure, get
from torchcaps.lab.reports.records import read_record
from torchcaps.lab.reports.results import Experiment, percent
from torchcaps.lab.reports.words import markdown_table
from torchcaps.terminal import format_duration

PICTURE = "error-by-time.png"
DIGITS = {"efficient2021/mnist": "Efficient-CapsNet", "sabour2017/mnist": "CapsNet"}  # as the study of costs has them
DRAWN = "sabour2017-mnist"  # the training whose error is drawn against time
COLUMNS = ("network", "paper", "ours", "at laptop scale", "seeds", "epochs, of the paper's", "time", "rule")
ABOUT = """## At the papers' own size
Regime, seeds, measure and rule of each row stand in `reproduction/paper_size/plan.toml` from before it was trained;
`python reproduction/paper_size/train_queue.py RUNS` trains what is left, one thread at low priority, and goes on where
it was stopped. Changes from a paper's regime are in the same file. Laptop scale is that of the sections below. Rows
that train a network of laptop width (overlapping and affine digits) say so in their command."""


def write_section(records: Path, places: RecordPaths, images: str) -> str:
    """Heading, table, remarks on rows that fall short, what is left, and the figure once there is something to draw."""
    rows, remarks, left = [], [], []
    for entry in read_plan():
        found = find_experiment(records, entry)
        trained = set() if found is None else {run.seed for run in found.runs}
        if missing := [str(seed) for seed in entry["seeds"] if seed not in trained]:
            left.append(f"{entry['name']} (seed{'s' if len(missing) > 1 else ''} {', '.join(missing)})")
        if found is None:
            continue
        rows.append(_row(entry, found, places))
        if remark := describe_shortfall(records, entry, found):
            remarks.append(f"- {remark}")
    parts = [ABOUT]
    if rows:
        parts.append(markdown_table(COLUMNS, rows))
    if remarks:
        parts.append("\n".join(remarks))
    if left:
        parts.append(f"Planned and not trained yet: {', '.join(left)}.")
    if read_curves(records, DRAWN):
        parts.append(f"![Validation error of CapsNet on MNIST against training time]({images}/{PICTURE})")
    return "\n\n".join(parts)


def digits_table(records: Path, places: RecordPaths) -> str:
    """Efficient-CapsNet beside CapsNet on MNIST: error for each parameter and each second."""
    study = next(each for point in PLAN for each in point.studies if each.name == "mnist-networks")
    measured = {row[0]: row for row in read_json(places.study(study, "laptop"))["rows"]}
    found = [
        (DIGITS[entry["recipe"]], _describe_length(_configure(entry)), find_experiment(records, entry))
        for entry in read_plan()
        if entry["recipe"] in DIGITS
    ]
    found.append(("CapsNet, a quarter as wide", "", find_laptop("sabour2017/mnist", places)))
    rows = [
        (
            name + more,
            f"{measured[name][1]:,}",
            f"{measured[name][2]:,}",
            _value(each),
            _count_wrong(each),
            f"{measured[name][4]:.0f}",
        )
        for name, more, each in found
        if each is not None
    ]
    columns = ("network", "parameters", "with the decoder", "on test digits", "wrong", "training, images a second")
    return markdown_table(columns, rows)


def _describe_length(recipe: AnyRecipe) -> str:
    words = [f", {recipe.epochs:g} epochs"]
    if not recipe.data.val_size:
        words.append("all digits")
    if not recipe.data.val_size or recipe.weights == "last":
        words.append("last weights")
    return ", ".join(words)


def _count_wrong(found: Experiment) -> str:
    """Wrong answers, of each seed and in all."""
    wrong = [run.total - run.correct for run in found.runs]
    if len(wrong) == 1:
        return f"{wrong[0]} of {found.runs[0].total:,}"
    return f"{' + '.join(map(str, wrong))} of {len(wrong)} × {found.runs[0].total:,}"


def find_experiment(records: Path, entry: Mapping[str, Any]) -> Experiment | None:
    """The finished runs of a row; ``None`` if there is none."""
    paths = [records / f"{entry['name']}-seed{seed}.json" for seed in entry["seeds"]]
    runs = tuple(read_record(path) for path in paths if path.is_file())
    return Experiment(runs) if runs else None


def read_curves(records: Path, name: str) -> dict[str, list[dict[str, float]]]:
    """Validation accuracy over epochs and seconds, of each seed that is finished and was validated."""
    paths = sorted((records / "curves").glob(f"{name}-seed*.json"))
    curves = {path.stem: read_json(path) for path in paths}
    return {name: curve["points"] for name, curve in curves.items() if curve["examples"] == "validation"}


def describe_shortfall(records: Path, entry: Mapping[str, Any], found: Experiment) -> str:
    """How far a row is from the paper's figure, after which part of its training, and how the curve ended."""
    target, run = found.runs[0].target, found.runs[0]
    if target is None or run.scale != "paper":
        return ""
    gap = (100 * found.value - target) * (1 if run.metric == "error" else -1)
    if gap <= 0:
        return ""
    recipe, paper = _configure(entry), get(entry["recipe"])
    words = f"{entry['name']}: {gap:.2f} % short of the paper, after {recipe.epochs:g} of its {paper.epochs:g} epochs"
    for curve in list(read_curves(records, entry["name"]).values())[:1]:
        late = [point["accuracy"] for point in curve if point["epoch"] >= 0.8 * curve[-1]["epoch"]]
        gain = 100 * (late[-1] - late[0])
        words += f"; over the last fifth of them validation accuracy changed by {gain:+.2f} %"
    return words + "."


@drawing
def draw_error_by_time(curves: Mapping[str, Sequence[Mapping[str, float]]], paper: float) -> Figure:
    """Validation error against hours of training, with the paper's test error as a line."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    panel = figure.subplots()
    for name, curve in curves.items():
        hours = [point["seconds"] / 3600 for point in curve]
        panel.plot(hours, [max(100 * (1 - point["accuracy"]), 0.01) for point in curve], label=f"{name}, validation")
    panel.axhline(paper, color="black", linestyle="--", linewidth=1, label=f"paper, test: {paper:g} %")
    use_log_scale(panel)
    panel.set(xlabel="hours of training", ylabel="error, %")
    panel.legend(frameon=False)
    return figure


def _row(entry: Mapping[str, Any], found: Experiment, places: RecordPaths) -> tuple[str, ...]:
    recipe, paper = _configure(entry), get(entry["recipe"])
    claim = paper.claim
    name = f"{entry['name']}<br>`{' '.join((entry['recipe'], *entry['options']))}`"
    # A figure is of the recipe's own network.
    known = claim.target is not None and not any(option.startswith("--model.") for option in entry["options"])
    figure = f"{claim.target:g} % {claim.metric} ({claim.table})" if known else "–"
    seeds = ", ".join(str(run.seed) for run in found.runs)
    epochs = f"{recipe.epochs:g} of {paper.epochs:g}" if "--scale" not in entry["options"] else f"{recipe.epochs:g}"
    time = format_duration(sum(run.seconds for run in found.runs) / len(found.runs))
    laptop = find_laptop(entry["recipe"], places)
    return (name, figure, _value(found), _value(laptop), seeds, epochs, time, entry["rule"])


def find_laptop(recipe: str, places: RecordPaths) -> Experiment | None:
    """The longest training of this recipe among the sections below."""
    items = (item for point in PLAN for item in point.items if item.recipe == recipe)
    found = (experiment(item, places) for item in items)
    return max((each for each in found if each), key=lambda each: each.runs[0].seconds, default=None)


def _value(found: Experiment | None) -> str:
    if found is None:
        return NOT_RUN
    low, high = found.interval
    return f"{percent(found.value)} % {found.runs[0].metric} ({percent(low)}–{percent(high)})"


def _configure(entry: Mapping[str, Any]) -> AnyRecipe:
    options = list(entry["options"])
    scale = "paper"
    if "--scale" in options:
        at = options.index("--scale")
        scale = options[at + 1]
        del options[at : at + 2]
    return configure(entry["recipe"], scale, tuple(options))
