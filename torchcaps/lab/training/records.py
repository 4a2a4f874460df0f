"""What a finished run reached, and how it was made: on which machine, by which code, from which data."""

import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import torchcaps
from torchcaps.files import write_json
from torchcaps.lab.recipes import Claim
from torchcaps.lab.training.distributed import World
from torchcaps.lab.training.loop import Loop
from torchcaps.lab.training.run import Run
from torchcaps.lab.training.scoring import Score, describe_baseline
from torchcaps.models import Model, checksum, count_parameters

FORMAT = 1
LONGEST = 80  # letters of the changes in a name


def make_record(run: Run, loop: Loop, model: Model, test: Score, sizes: dict[str, int]) -> dict[str, Any]:
    """The record of a finished run. Shares are from 0 to 1, targets of papers in percent as they print them."""
    recipe, here = run.recipe, loop.position
    return {
        "format": FORMAT,
        "recipe": recipe.name,
        "scale": run.scale,
        "seed": recipe.seed,
        "model": recipe.model_name,
        "parameters": count_parameters(model),
        "weights_sha256": checksum(model.state_dict()),
        "data": {"train": recipe.data.train, "test": recipe.data.test or recipe.data.train, "sizes": sizes},
        "metrics": {
            "accuracy": test.accuracy,
            "error": 1.0 - test.accuracy,
            "balanced_accuracy": test.balanced_accuracy,
            "majority_share": test.majority_share,
            "interval": list(test.interval),
            "correct": test.correct,
            "total": test.total,
            "loss": test.loss,
            "val": here.best if recipe.weights == "best" else here.val_accuracy,
        },
        "claim": asdict(recipe.claim),
        "steps": here.step,
        "epochs": here.step / loop.order.steps_per_epoch,
        "seconds": round(here.seconds, 1),
        "input_share": round(here.waited / here.seconds, 4) if here.seconds else 0.0,
        "commit": commit(),
        "machine": machine(loop.world),
        "torch": torch.__version__,
        "overrides": list(run.overrides),
    }


def write_record(run: Run, record: dict[str, Any], results: Path | None) -> None:
    """Write the record into the run folder, and a copy among the results if there is a place for them."""
    if results is not None:
        folder = results / slug(run.recipe.name)
        folder.mkdir(parents=True, exist_ok=True)
        name = label(run.scale, run.recipe.seed, run.overrides)
        write_json(folder / f"{name}.json", record)
    write_json(run.folder / "record.json", record)  # last: with it the run is finished


def label(scale: str, seed: int, overrides: Sequence[str] = ()) -> str:
    """A name for a run among those of its recipe: its scale, what was changed, and its seed.

    >>> label("laptop", 2, ["--model.routing", "em", "--seed", "2"]), label("", 0)
    ('laptop-model.routing-em-seed2', 'own-seed0')
    """
    changes = "-".join(map(slug, without_seed(overrides)))
    if len(changes) > LONGEST:
        digest = hashlib.sha256(" ".join(without_seed(overrides)).encode()).hexdigest()[:8]
        changes = f"{changes[:LONGEST]}-{digest}"
    return "-".join(part for part in (slug(scale) or "own", changes, f"seed{seed}") if part)


def slug(text: str) -> str:
    """A text as part of a file's name: it leads nowhere else, and hides nothing.

    >>> slug("sabour2017/mnist"), slug("../../etc"), slug("--model.routing")
    ('sabour2017-mnist', 'etc', 'model.routing')
    """
    return re.sub(r"[^\w.+]+", "-", text).strip("-.")


def without_seed(overrides: Sequence[str]) -> tuple[str, ...]:
    """The words of a command line but for the seed, in which runs of one experiment differ; ``--a=b`` is two words.

    >>> without_seed(["--epochs=3", "--seed", "2"]), without_seed(["--seed=2"])
    (('--epochs', '3'), ())
    """
    words = iter([part for word in overrides for part in (word.split("=", 1) if word.startswith("--") else [word])])
    kept: list[str] = []
    for word in words:
        if word == "--seed":
            next(words, None)
        else:
            kept.append(word)
    return tuple(kept)


def machine(world: World) -> dict[str, Any]:
    """What the run was made on."""
    gpu = torch.cuda.get_device_name(world.device) if world.device.type == "cuda" else None
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processes": world.size,
        "gpu": gpu,
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def commit() -> str | None:
    """The commit of this code, with a plus if files were changed since; None where it is not in a repository."""
    folder = str(Path(torchcaps.__file__).parent)

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=True, timeout=20)
        return done.stdout.strip()

    try:
        if not git("ls-files", "__init__.py"):  # an installed copy inside somebody else's repository
            return None
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def against_claim(found: Score, claim: Claim) -> str:
    """What was reached and the target, in one line.

    >>> against_claim(Score(0.0, 975, 1000), Claim("Table 1, row 4", "error", 0.25))
    'test error 2.50 % (95 % interval 1.70–3.66 %; 975 of 1,000 correct); target: 0.25 % (Table 1, row 4)'
    """
    low, high = found.interval
    share = found.accuracy
    if claim.metric == "error":
        share, low, high = 1.0 - share, 1.0 - high, 1.0 - low
    reached = (
        f"test {claim.metric} {100 * share:.2f} % (95 % interval {100 * low:.2f}–{100 * high:.2f} %; "
        f"{found.correct:,} of {found.total:,} correct)"
    )
    if baseline := describe_baseline(found):
        reached += f"; {baseline}"
    if claim.target is None:
        return f"{reached}; no target ({claim.table})"
    return f"{reached}; target: {claim.target:g} % ({claim.table})"
