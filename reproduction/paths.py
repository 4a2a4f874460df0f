"""Where a campaign keeps what it makes: run folders, and the records that outlive them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproduction.base import CampaignScale, Job, Study
from torchcaps.files import read_json, write_json


@dataclass(frozen=True)
class RecordPaths:
    """``results`` has a folder of records for each recipe; beside it are records of studies and of failures."""

    results: Path = Path("reproduction/records/runs")
    runs: Path = Path("runs/reproduction")
    figures: Path = Path("docs/images/results")

    def record(self, job: Job) -> Path:
        return self.results / job.group / f"{job.label}.json"

    def run(self, job: Job) -> Path:
        return self.runs / job.name

    def study(self, study: Study, scale: CampaignScale) -> Path:
        return self.results.parent / "studies" / f"{study.name}-{scale}.json"

    def failure(self, name: str) -> Path:
        return self.results.parent / "failed" / f"{name}.json"

    def figure(self, name: str, scale: CampaignScale) -> Path:
        return self.figures / (f"{name}.png" if scale == "laptop" else f"{name}-{scale}.png")

    @contextmanager
    def held(self, name: str) -> Iterator[bool]:
        """Keep a task from all other processes while this lasts; false if one of them has it. What a process held is
        free when it ends, however it ends."""
        from filelock import FileLock, Timeout  # of the extra that data needs as well

        path = self.runs / "held" / f"{name}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            yield False
            return
        try:
            yield True
        finally:
            lock.release()

    def write_failure(self, name: str, what: Mapping[str, Any]) -> None:
        path = self.failure(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, dict(what))

    def forget_failure(self, name: str) -> None:
        self.failure(name).unlink(missing_ok=True)

    def failures(self) -> dict[str, dict[str, Any]]:
        """What failed last and has not succeeded since, by name."""
        folder = self.results.parent / "failed"
        found = sorted(folder.glob("*.json")) if folder.is_dir() else []
        return {path.stem: read_json(path) for path in found}
