"""From finished runs to records of studies: JSON that the page shows as a table, and figures."""

import io
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from reproduction import convergence, costs, learning, measures
from reproduction.base import CampaignScale, Job, Point, Study
from reproduction.measured import Measured, StudyRun
from reproduction.paths import RecordPaths
from torchcaps.files import write_bytes, write_json
from torchcaps.lab.evaluation.subjects import open_model
from torchcaps.lab.training.distributed import World
from torchcaps.lab.training.records import commit, machine

FORMAT = 1
HEAVIEST = 150_000  # bytes of a picture
COLORS = 128
RESOLUTIONS = (130, 110, 90, 70, 50)  # dots per inch, the first that is light enough

MEASURES: dict[str, Callable[[Sequence[StudyRun], CampaignScale], Measured]] = {
    "robustness": measures.robustness,
    "attacks": measures.attacks,
    "viewpoint": measures.viewpoint,
    "separated": measures.separated,
    "iterations": measures.iterations,
    "familiar": measures.familiar,
    "convergence": convergence.convergence,
    "learning": learning.learning,
    "cost": costs.cost,
    "routing_costs": costs.routing_costs,
    "digit_networks": costs.digit_networks,
    "inference_time": costs.inference_time,
}


def runs_of(point: Point, study: Study, scale: CampaignScale) -> list[Job]:
    """The trainings that a study looks at: the first seed of each of its items, or all."""
    items = [point.item(name) for name in study.runs]
    return [
        Job(point.name, item, seed, scale)
        for item in items
        for seed in (item.seeds if study.every_seed else item.seeds[:1])
    ]


def write_study(
    point: Point, study: Study, scale: CampaignScale, places: RecordPaths, threads: int | None = None
) -> None:
    """Measure, draw, and write the record: last, so that a record means that all is there."""
    if study.kind not in MEASURES:
        raise ValueError(f"no kind of study {study.kind!r}; there are {', '.join(MEASURES)}")
    jobs = runs_of(point, study, scale)
    began = time.monotonic()
    with using_threads(threads):
        subjects = [_subject(job, places) for job in jobs]
        measured = MEASURES[study.kind](subjects, scale)
        record = _record(study, scale, jobs, measured, time.monotonic() - began)
    for name, figure in measured.figures.items():
        path = places.figure(f"{study.name}-{name}" if name else study.name, scale)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, light_picture(figure))
        record["figures"].append(path.name)
    path = places.study(study, scale)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, record)


def _subject(job: Job, places: RecordPaths) -> StudyRun:
    opened = open_model(places.run(job))
    assert opened.run is not None
    return StudyRun(job.item.name, opened, opened.run, opened.run.record() or {})


def _record(
    study: Study, scale: CampaignScale, jobs: Sequence[Job], measured: Measured, seconds: float
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "study": study.name,
        "kind": study.kind,
        "scale": scale,
        "runs": [f"{job.group}/{job.label}" for job in jobs],
        "about": measured.about,
        "columns": list(measured.columns),
        "rows": [list(row) for row in measured.rows],
        "comparisons": [dict(each) for each in measured.comparisons],
        "numbers": measured.numbers,
        "figures": [],
        "seconds": round(seconds, 1),
        "commit": commit(),
        "machine": machine(World(torch.device("cpu"))),
        "torch": torch.__version__,
    }


def light_picture(figure: Any, heaviest: int = HEAVIEST) -> bytes:
    """A figure as PNG of few colors, at the highest resolution that keeps it light."""
    from PIL import Image  # matplotlib needs it as well

    drawn = b""
    for dpi in RESOLUTIONS:
        file, light = io.BytesIO(), io.BytesIO()
        figure.savefig(file, format="png", dpi=dpi)
        Image.open(file).convert("RGB").quantize(COLORS).save(light, format="png", optimize=True)
        drawn = light.getvalue()
        if len(drawn) <= heaviest:
            return drawn
    raise ValueError(f"the figure has {len(drawn):,} bytes even at {RESOLUTIONS[-1]} dpi; at most {heaviest:,}")


@contextmanager
def using_threads(number: int | None) -> Iterator[None]:
    """So many threads of torch while this lasts."""
    before = torch.get_num_threads()
    if number is not None:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
