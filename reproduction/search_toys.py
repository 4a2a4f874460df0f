"""Search for settings on rendered toys: as many for capsules as for the CNN that they are compared with.

    python reproduction/search_toys.py RUNS [--only NETWORK] [--most N] [--list]

Every trial trains on four instances of each category and is scored on the fifth (the dataset `toys_val`); the test
instances are never loaded. RUNS is a folder for run folders. What is recorded is skipped, so the same command goes on
where it was stopped, and adds what was added to the list of trials. The record is `records/searches/toys.json`.
"""

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from reproduction.toy_trials import ON_VALIDATION, TRIALS, ToyTrial
from torchcaps.files import read_json, write_json
from torchcaps.lab.recipes import configure, fit_to_data
from torchcaps.lab.reports.results import percent
from torchcaps.lab.reports.words import markdown_table
from torchcaps.lab.training import Run, TrainOptions, train

RECORD = Path(__file__).parent / "records" / "searches" / "toys.json"
ABOUT = (
    "Trials of settings on rendered toys. Accuracy is that of one instance of each category kept from training "
    "(toys_val); training accuracy is that of the last tenth of the epochs, on changed images. One seed."
)


@dataclass(frozen=True)
class TrialResult:
    """What one trial came to, and how it was made. Shares are from 0 to 1."""

    network: str
    recipe: str
    name: str
    options: tuple[str, ...]
    seed: int
    accuracy: float
    correct: int
    total: int
    training_accuracy: float
    steps: int
    epochs: float
    parameters: int
    seconds: float


def read_results(path: Path = RECORD) -> list[dict[str, Any]]:
    """Every trial so far, in the order in which they were run."""
    return read_json(path)["trials"] if path.is_file() else []


def run_trial(trial: ToyTrial, runs: Path, console: Console | None = None) -> TrialResult:
    """Train on four instances of each category and score the fifth."""
    options = (*trial.options, *ON_VALIDATION, "--seed", str(trial.seed))
    recipe = fit_to_data(configure(trial.recipe, "laptop", options))
    if recipe.data.train != "toys_val" or recipe.data.test not in ("", "toys_val"):
        raise ValueError(f"{trial.name}: a search sees toys_val alone, not {recipe.data.train} and {recipe.data.test}")
    folder = runs / trial.folder
    run = train(
        recipe,
        folder,
        scale="laptop",
        resume=True,
        console=console,
        options=TrainOptions(threads=1, overrides=options, again="python reproduction/search_toys.py RUNS"),
    )
    record = run.record()
    if record is None:
        raise RuntimeError(f"{folder} has no record although its training ended")
    metrics = record["metrics"]
    return TrialResult(
        network=trial.network,
        recipe=trial.recipe,
        name=trial.name,
        options=trial.options,
        seed=trial.seed,
        accuracy=metrics["accuracy"],
        correct=metrics["correct"],
        total=metrics["total"],
        training_accuracy=final_training_accuracy(run),
        steps=record["steps"],
        epochs=record["epochs"],
        parameters=record["parameters"],
        seconds=record["seconds"],
    )


def final_training_accuracy(run: Run) -> float:
    """The accuracy on training images over the last tenth of the steps, or the last line that was written."""
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    lines = [line for line in lines if line["kind"] == "train"]
    last = lines[-1]["step"]
    kept = [line["accuracy"] for line in lines if line["step"] > 0.9 * last]
    return sum(kept) / len(kept)


def best_trial(network: str, path: Path = RECORD) -> dict[str, Any]:
    """The trial of a network that was most accurate on the instances kept apart: the rule of the choice."""
    return max((each for each in read_results(path) if each["network"] == network), key=lambda each: each["accuracy"])


def search_table(network: str, path: Path = RECORD) -> str:
    """Every trial of a network in the order of the search, with what it changed."""
    rows = [
        (
            each["name"],
            f"`{' '.join(each['options'])}`",
            f"{each['steps']:,}",
            f"{percent(each['training_accuracy'])} %",
            f"{percent(each['accuracy'])} %",
        )
        for each in read_results(path)
        if each["network"] == network
    ]
    return markdown_table(("trial", "options", "steps", "training", "kept instance"), rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="folder for run folders and checkpoints")
    parser.add_argument("--only", default="", help="only the trials of this network")
    parser.add_argument("--most", type=int, default=1_000, help="end after so many trials")
    parser.add_argument("--list", action="store_true", help="show what has been tried, and stop")
    arguments = parser.parse_args()
    networks = list(dict.fromkeys(trial.network for trial in TRIALS))
    if arguments.only and arguments.only not in networks:
        parser.error(f"no network {arguments.only!r}; there are {', '.join(networks)}")
    ran = 0
    for trial in TRIALS:
        if arguments.only and trial.network != arguments.only:
            continue
        found = [each for each in read_results() if (each["network"], each["name"]) == (trial.network, trial.name)]
        if not found and not arguments.list and ran < arguments.most:
            ran += 1
            print(f"{trial.network}: {trial.name}", flush=True)
            found = [asdict(run_trial(trial, arguments.runs))]
            RECORD.parent.mkdir(parents=True, exist_ok=True)
            write_json(RECORD, {"about": ABOUT, "trials": [*read_results(), *found]})
        for each in found:
            share, fitted = 100 * each["accuracy"], 100 * each["training_accuracy"]
            line = f"{share:6.2f} % (training {fitted:.2f} %), {each['seconds']:.0f} s"
            print(f"{line}  {trial.network}: {trial.name}  {' '.join(trial.options)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
