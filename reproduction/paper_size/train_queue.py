"""Train what `plan.toml` lists, in its order, at low priority; killed at any moment, the same command goes on.

    python reproduction/paper_size/train_queue.py RUNS [--only NAME] [--list]

RUNS is a folder outside of the repository for run folders and checkpoints. Start it from a clone at a fixed commit, so
that work on the code does not touch a training. Records and learning curves of finished trainings are copied to
`records/` beside this file; what has a record there is not trained again, on whatever machine.
"""

import argparse
import contextlib
import json
import math
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from torchcaps.files import write_json

HERE = Path(__file__).parent
RECORDS = HERE / "records"
QUIET = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}  # beside other work, threads that wait must not spin


def read_plan() -> list[dict[str, Any]]:
    """The rows of the plan, in order."""
    return tomllib.loads((HERE / "plan.toml").read_text(encoding="utf-8"))["training"]


def trainings() -> list[tuple[str, int, dict[str, Any]]]:
    """Name, seed and entry of every training of the plan, in order."""
    return [(f"{entry['name']}-seed{seed}", seed, entry) for entry in read_plan() for seed in entry["seeds"]]


def command(folder: Path, seed: int, entry: dict[str, Any]) -> list[str]:
    """The command that starts a training, or goes on with it."""
    start = [sys.executable, "-m", "torchcaps", "train"]
    if (folder / "recipe.json").is_file():
        return [*start, "--resume", "--out", str(folder), "--threads", "1"]
    options = ["--out", str(folder), "--threads", "1", *entry["options"], "--seed", str(seed)]
    return [*start, entry["recipe"], *options]


def state(folder: Path) -> str:
    """How far the training of a run folder is: "recorded", "finished" but not yet recorded, "begun" or "waiting"."""
    if (RECORDS / f"{folder.name}.json").is_file():
        return "recorded"
    if (folder / "record.json").is_file():
        return "finished"
    return "begun" if (folder / "recipe.json").is_file() else "waiting"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="folder for run folders and checkpoints")
    parser.add_argument("--only", default="", help="only the trainings whose names begin so")
    parser.add_argument("--list", action="store_true", help="say how far each training is, and stop")
    arguments = parser.parse_args()
    runs = arguments.runs.absolute()
    chosen = [training for training in trainings() if training[0].startswith(arguments.only)]
    if not chosen:
        names = ", ".join(dict.fromkeys(entry["name"] for _, _, entry in trainings()))
        parser.error(f"no training begins with {arguments.only!r}; there are {names}")
    if arguments.list:
        for name, _, _ in chosen:
            print(f"{state(runs / name):9} {name}")
        return 0
    step_back()
    for name, seed, entry in chosen:
        folder = runs / name
        if state(folder) == "recorded":
            continue
        if state(folder) != "finished":
            result = subprocess.run(command(folder, seed, entry), env={**os.environ, **QUIET}, cwd=HERE, check=False)
            if result.returncode != 0:
                print(f"{name} ended with {result.returncode}; the same command goes on", file=sys.stderr)
                return result.returncode
        keep(folder, RECORDS)
    return 0


def step_back() -> None:
    """Take the lowest priority. Where Linux groups processes by session, nice alone counts within the group only."""
    os.nice(19)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text("19")


def keep(folder: Path, records: Path) -> None:
    """Copy a finished training's record and its learning curve to where they outlive it."""
    (records / "curves").mkdir(parents=True, exist_ok=True)
    write_json(records / "curves" / f"{folder.name}.json", learning_curve(folder / "metrics.jsonl"))
    shutil.copyfile(folder / "record.json", records / f"{folder.name}.json")


def learning_curve(metrics: Path) -> dict[str, Any]:
    """Accuracy over epochs and seconds: of validation examples, or of each epoch's last training batches."""
    lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    measured = [line for line in lines if line["kind"] == "val"]
    if not measured:
        trained = (line for line in lines if line["kind"] == "train")
        measured = list({math.ceil(line["epoch"]): line for line in trained}.values())
    points = [{key: line[key] for key in ("epoch", "seconds", "accuracy")} for line in measured]
    return {
        "examples": "validation" if any(line["kind"] == "val" for line in measured) else "training",
        "points": points,
    }


if __name__ == "__main__":
    raise SystemExit(main())
