"""Measure heads on the hidden states of a small language model, on the real SST test sentences; and write the tables.

    python reproduction/measure_language.py sst5 --seeds 0 1 2    # trains what records/language/sst5.json lacks
    python reproduction/measure_language.py sst5 --heads "vector routing"
    python reproduction/measure_language.py --write               # the tables of docs/language.md from the records

Every head is a recipe, at the scale ``laptop``. Every finished run is written down at once, so that a measurement that
was stopped goes on where it was.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from torchcaps.files import write_json, write_text
from torchcaps.lab.evaluation import difference_over_seeds, over_seeds
from torchcaps.lab.training import interval

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "reproduction" / "records" / "language"
PAGE = ROOT / "docs" / "language.md"
BEGIN, END = "<!-- language: written from the results -->\n", "<!-- end of language -->\n"
SEARCH_BEGIN, SEARCH_END = "<!-- search: written from the results -->\n", "<!-- end of search -->\n"
TASKS = ("sst5", "sst2")
CAPSULES, POOLING = "capsules", "attention pooling"
VECTORS, WIDE_VECTORS = "vector routing", "vector routing, wide"
HEADS = {
    CAPSULES: "heinsen2019/{}",
    VECTORS: "heinsen2022/{}-small",
    WIDE_VECTORS: "heinsen2022/{}",
    POOLING: "heinsen2019/{}-attention",
}
PAIRS = ((CAPSULES, POOLING), (VECTORS, POOLING), (VECTORS, CAPSULES), (WIDE_VECTORS, POOLING))
LOGISTIC = "logistic regression"


def measure(task: str, seeds: list[int], heads: list[str], folder: str) -> None:
    import torchcaps.lab.recipes as recipes
    from torchcaps import models
    from torchcaps.lab.text import fit_to_texts
    from torchcaps.lab.training import train

    record = _read(task)
    words = ["--text.folder", folder] if folder else []
    if LOGISTIC not in record:
        record[LOGISTIC] = _logistic(recipes.configure(f"heinsen2019/{task}", "laptop", words))
        _write(task, record)
    for head in heads:
        for seed in seeds:
            done = record.setdefault(head, {"runs": []})
            if any(run["seed"] == seed for run in done["runs"]):
                continue
            recipe = fit_to_texts(recipes.configure(HEADS[head].format(task), "laptop", [*words, "--seed", str(seed)]))
            with tempfile.TemporaryDirectory() as place:
                run = train(recipe, Path(place) / "run", scale="laptop")
                found, val = run.record(), [line for line in run.metrics() if line["kind"] == "val"]
                done["parameters"] = models.count_parameters(run.model())
            assert found is not None
            metrics = found["metrics"]
            line = {"seed": seed, "val": max(one["accuracy"] for one in val)}
            line |= {"correct": metrics["correct"], "total": metrics["total"], "seconds": round(found["seconds"], 1)}
            done["runs"].append(line)
            print(head, line, flush=True)
            _write(task, record)


def _logistic(recipe: Any) -> dict[str, Any]:
    """The best of penalties and of two training sets (all that the heads see, or sentences), on validation ones."""
    import torch

    from torchcaps.lab.text import baselines, tasks

    parts = {split: tasks.examples(recipe, split) for split in ("train", "val", "test")}
    cache = tasks.shared_cache(recipe)
    pooled = {split: baselines.pool_mean(cache.embedded(part.sentences)) for split, part in parts.items()}
    whole = set(tasks.examples_of(recipe, recipe.data.test, "train").sentences)
    sentences = torch.tensor([text in whole for text in parts["train"].sentences])
    sets = {"sentences": sentences, "sentences and phrases": torch.ones_like(sentences)}
    val = pooled["val"], parts["val"].labels
    classes = len(parts["train"].classes)
    fits = {
        name: baselines.best_logistic((pooled["train"][rows], parts["train"].labels[rows]), val, classes)
        for name, rows in sets.items()
    }
    chosen = max(fits, key=lambda name: fits[name].correct(*val))
    best = fits[chosen]
    line = {"seed": None, "val": best.correct(*val) / len(parts["val"])}
    line |= {"correct": best.correct(pooled["test"], parts["test"].labels), "total": len(parts["test"])}
    parameters = best.weight.numel() + best.bias.numel()
    return {"parameters": parameters, "penalty": best.penalty, "trained_on": chosen, "runs": [line]}


def _read(task: str) -> dict[str, Any]:
    path = RECORDS / f"{task}.json"
    return json.loads(path.read_text()) if path.is_file() else {}


def _write(task: str, record: dict[str, Any]) -> None:
    RECORDS.mkdir(parents=True, exist_ok=True)
    write_json(RECORDS / f"{task}.json", record, indent=1)


def table() -> str:
    """All records that there are, one table."""
    lines = [
        "| data | head | parameters | validation | test | over seeds | over sentences |",
        "|---|---|---|---|---|---|---|",
    ]
    for task in TASKS:
        record = _read(task)
        for head in (*HEADS, LOGISTIC):
            if record.get(head, {}).get("runs"):
                lines.append(_row(task, head, record[head]))
    return (
        "\n".join([*lines, "", "Differences on test sentences, 95 % over seeds (Welch's t):", *_differences()]) + "\n"
    )


def _differences() -> list[str]:
    """How far one head is ahead of another on test sentences."""
    lines = []
    for task in TASKS:
        record = _read(task)
        for one, other in PAIRS:
            ours, theirs = (_shares(record.get(head, {"runs": []})["runs"]) for head in (one, other))
            if min(len(ours), len(theirs)) > 1:
                low, high = difference_over_seeds(ours, theirs)
                lines.append(f"- {task}, {one} against {other}: {(low + high) / 2:+.1f} % ({low:+.1f} to {high:+.1f})")
    return lines


def _shares(runs: list[dict[str, Any]]) -> list[float]:
    return [100 * run["correct"] / run["total"] for run in runs]


def _row(task: str, head: str, found: dict[str, Any]) -> str:
    runs = found["runs"]
    shares = _shares(runs)
    mean = statistics.mean(shares)
    seeds = "one minimum, no seed" if runs[0]["seed"] is None else f"{len(runs)} seed"
    if len(runs) > 1:
        low, high = over_seeds(shares)
        seeds = f"{low:.1f}–{high:.1f} % ({len(runs)} seeds)"
    low, high = interval(round(mean / 100 * runs[0]["total"]), runs[0]["total"])
    val = 100 * statistics.mean(run["val"] for run in runs)
    return (
        f"| {task} | {head} | {found['parameters']:,} | {val:.1f} % | {mean:.1f} % | {seeds} | "
        f"{100 * low:.1f}–{100 * high:.1f} % |"
    )


def search_table() -> str:
    """What was tried on validation sentences before anything was tested: every setting, in the order of trying."""
    lines = ["| head | examples × epochs | changed | validation | loss |", "|---|---|---|---|---|"]
    for tried in json.loads((RECORDS / "search.json").read_text())["settings"]:
        changed = ", ".join(f"{name} {value}" for name, value in tried["changed"].items()) or "–"
        lines.append(
            f"| {tried['head']} | {tried['examples']:,} × {tried['epochs']:g} | {changed} | "
            f"{tried['val']:.1f} % | {tried['loss']:.3f} |"
        )
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The page with its tables made anew."""
    for begin, end, made in ((BEGIN, END, table()), (SEARCH_BEGIN, SEARCH_END, search_table())):
        before, rest = text.split(begin)
        _, after = rest.split(end)
        text = before + begin + made + end + after
    return text


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", choices=[*TASKS, []], default=[])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--heads", nargs="+", choices=list(HEADS), default=list(HEADS))
    parser.add_argument("--folder", default="", help="where hidden states are kept")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    for each in options.tasks:
        measure(each, options.seeds, options.heads, options.folder)
    if options.write:
        write_text(PAGE, page(PAGE.read_text()))
