"""Records as a campaign would write them, without the campaign."""

from typing import Any

from reproduction import Job, RecordPaths
from torchcaps.files import write_json
from torchcaps.lab.recipes import get


def plant(places: RecordPaths, job: Job, correct: int, total: int = 10_000, seconds: float = 120.0) -> None:
    """A record of this training with so many right answers."""
    claim = get(job.item.recipe).claim
    record: dict[str, Any] = {
        "format": 1,
        "recipe": job.item.recipe,
        "scale": job.scale,
        "seed": job.seed,
        "model": "m",
        "parameters": 1234,
        "data": {"train": "mnist", "test": "mnist", "sizes": {"train": 60_000, "test": total}},
        "metrics": {"accuracy": correct / total, "correct": correct, "total": total, "val": None},
        "claim": {"table": claim.table, "metric": claim.metric, "target": claim.target, "note": claim.note},
        "steps": 10,
        "seconds": seconds,
        "commit": None,
        "overrides": list(job.arguments),
    }
    path = places.record(job)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, record)
