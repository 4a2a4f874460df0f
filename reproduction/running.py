"""The campaign as it runs: what is recorded is skipped, what was begun goes on, what fails is written down. Any number
of processes may run it at the same time: each takes what no other is at."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from rich.console import Console

from reproduction.base import CampaignScale, Job, Point, Study
from reproduction.paths import RecordPaths
from reproduction.plan import PLAN
from reproduction.studies import runs_of, write_study
from torchcaps.files import read_json, write_json
from torchcaps.lab.recipes import AnyRecipe, configure, fit_to_data
from torchcaps.lab.training import Run, StoppedError, TrainOptions, train

LONG = 30.0  # minutes from which a training waits until everything has been seen once
SMOKE_MINUTES = 0.1
Task = Job | tuple[Point, Study]


def choose(only: Sequence[str] = ()) -> tuple[Point, ...]:
    """The points of these names, or all."""
    names = [point.name for point in PLAN]
    unknown = [name for name in only if name not in names]
    if unknown:
        raise ValueError(f"no point {unknown[0]!r}; there are {', '.join(names)}")
    return tuple(point for point in PLAN if not only or point.name in only)


def in_order(points: Sequence[Point], scale: CampaignScale) -> list[Job]:
    """All trainings: the first seed of everything before any second one, the points taking turns, the long ones after
    the first round. Trainings that two points share come once."""
    keyed: list[tuple[tuple[int, int, int], Job]] = []
    for number, point in enumerate(points):
        for place, item in enumerate(point.items):
            for turn, seed in enumerate(item.seeds):
                late = turn + (1 if item.minutes >= LONG else 0)
                keyed.append(((late, place, number), Job(point.name, item, seed, scale)))
    ordered: dict[str, Job] = {}
    for _, job in sorted(keyed, key=lambda pair: pair[0]):
        ordered.setdefault(job.name, job)
    return list(ordered.values())


def minutes_of(job: Job, places: RecordPaths) -> float:
    """What a training will take: as other seeds of it did, or as planned."""
    if job.scale == "smoke":
        return SMOKE_MINUTES
    others = (places.record(Job(job.point, job.item, seed, job.scale)) for seed in job.item.seeds)
    took = [read_json(path)["seconds"] / 60 for path in others if path.is_file()]
    return fmean(took) if took else job.item.minutes


@dataclass
class CampaignResult:
    """How many tasks came to which end."""

    done: int = 0
    skipped: int = 0
    failed: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)  # for want of time, or of what they need
    elsewhere: list[str] = field(default_factory=list)  # another process is at them

    @property
    def code(self) -> int:
        return 1 if self.failed else 0


@dataclass
class Campaign:
    """Everything that one call of the command does."""

    points: tuple[Point, ...]
    scale: CampaignScale
    places: RecordPaths
    console: Console
    hours: float | None = None
    threads: int | None = None
    clock: Callable[[], float] = time.monotonic

    def recorded(self, task: Task) -> bool:
        if isinstance(task, Job):
            return self.places.record(task).is_file()
        return self.places.study(task[1], self.scale).is_file()

    def left(self) -> list[Job]:
        return [job for job in in_order(self.points, self.scale) if not self.recorded(job)]

    def studies(self) -> Iterator[tuple[Point, Study]]:
        for point in self.points:
            for study in point.studies:
                yield point, study

    def minutes_left(self) -> float:
        jobs = sum(minutes_of(job, self.places) for job in self.left())
        each = (SMOKE_MINUTES if self.scale == "smoke" else study.minutes for _, study in self._studies_left())
        return jobs + sum(each)

    def _studies_left(self) -> list[tuple[Point, Study]]:
        return [pair for pair in self.studies() if not self.recorded(pair)]

    def run(self) -> CampaignResult:
        """Do what is left, in order, until the time is over. A stop by signal comes through as ``StoppedError``."""
        outcome = CampaignResult()
        began, jobs = self.clock(), in_order(self.points, self.scale)
        self._studies_due(outcome)
        for number, job in enumerate(jobs, start=1):
            if self.recorded(job):
                outcome.skipped += 1
                continue
            minutes, spent = minutes_of(job, self.places), (self.clock() - began) / 60
            if self.hours is not None and spent + minutes > 60 * self.hours:
                outcome.left.append(job.name)
                continue
            with self.places.held(job.name) as mine:
                if not mine or self.recorded(job):  # by now, by another process
                    outcome.elsewhere.append(job.name)
                    continue
                self.say(f"[{number} of {len(jobs)}] {job.point}: {job.name}, about {minutes:.1f} min")
                trained = self._attempt(job.name, lambda job=job: self._train(job), outcome)
            if trained:
                self._studies_due(outcome)
        outcome.left += [study.name for _, study in self._studies_left() if study.name not in outcome.failed]
        return outcome

    def _studies_due(self, outcome: CampaignResult) -> None:
        """The studies whose runs are finished, and which were not tried before."""
        for point, study in self._studies_left():
            if study.name in outcome.failed or not all(run.is_dir() for run in self._folders(point, study)):
                continue
            if any(Run.open(folder).record() is None for folder in self._folders(point, study)):
                continue
            with self.places.held(study.name) as mine:
                if mine and not self.recorded((point, study)):
                    self.say(f"study {study.name}")
                    self._attempt(study.name, lambda p=point, s=study: self._study(p, s), outcome)

    def _study(self, point: Point, study: Study) -> None:
        write_study(point, study, self.scale, self.places, self.threads)

    def _folders(self, point: Point, study: Study) -> list[Path]:
        return [self.places.run(job) for job in runs_of(point, study, self.scale)]

    def _attempt(self, name: str, do: Callable[[], object], outcome: CampaignResult) -> bool:
        """Do something; what goes wrong is written down, and the campaign goes on."""
        try:
            do()
        except StoppedError:
            raise
        except Exception as error:  # whatever it is: hours do not end because of one of a hundred trainings
            outcome.failed.append(name)
            said = f"{type(error).__name__}: {error}"
            self.places.write_failure(name, {"name": name, "scale": self.scale, "error": said})
            self.say(f"failed: {said}")
            return False
        self.places.forget_failure(name)
        outcome.done += 1
        return True

    def _train(self, job: Job) -> None:
        recipe = prepare(job)
        options = TrainOptions(
            threads=self.threads, results=self.places.results, overrides=job.arguments, again="python -m reproduction"
        )
        folder = self.places.run(job)
        run = train(recipe, folder, scale=job.scale, resume=True, console=self.console, options=options)
        record = run.record()
        if record is not None and not self.recorded(job):  # finished before, and its record went missing
            self.places.record(job).parent.mkdir(parents=True, exist_ok=True)
            write_json(self.places.record(job), record)

    def say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True, markup=False, highlight=False)


def prepare(job: Job) -> AnyRecipe:
    """The recipe of a training, its model fitted to the data that it names."""
    return fit_to_data(configure(job.item.recipe, job.scale, job.arguments))
