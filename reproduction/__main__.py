"""``python -m reproduction``: all trainings and studies behind the page of results, as many as are not recorded yet."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class Reproduce:
    """Train and measure all that the page of results shows. What is recorded is skipped, and a training that was
    stopped goes on where it was: the same command starts the campaign and continues it. Started once for each core,
    with --threads 1, they share the work."""

    scale: Literal["laptop", "smoke"] = "laptop"
    """Minutes for each training, or two steps to see that all runs."""
    only: Annotated[tuple[str, ...], tyro.conf.arg(metavar="POINT…")] = ()
    """Only these points; --list names them."""
    list: bool = False
    """Show what there is to do and what is done, and do nothing."""
    hours: float | None = None
    """Begin nothing that would end later than so many hours from now."""
    threads: int | None = None
    """Threads of torch; its own choice if left out."""
    results: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("reproduction/records/runs")
    """Records of trainings; those of studies and failures go beside it."""
    runs: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("runs/reproduction")
    """Run folders."""
    figures: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("docs/images/results")
    """Figures of studies."""

    def run(self) -> int:
        from rich.console import Console

        from reproduction import Campaign, RecordPaths, choose
        from torchcaps.lab.training import StoppedError

        if self.hours is not None and self.hours <= 0:
            raise ValueError(f"--hours {self.hours:g} leaves no time for anything; give more than 0")
        places = RecordPaths(self.results, self.runs, self.figures)
        campaign = Campaign(choose(self.only), self.scale, places, Console(), self.hours, self.threads)
        self._show(campaign)
        if self.list:
            return 0
        try:
            outcome = campaign.run()
        except StoppedError as stopped:
            print(f"reproduction: {stopped}", file=sys.stderr)
            return 130
        print(
            f"{outcome.done} done, {outcome.skipped} recorded before, {len(outcome.failed)} failed, "
            f"{len(outcome.left)} left, {len(outcome.elsewhere)} taken by others"
        )
        for name, failure in places.failures().items():
            if name in outcome.failed:
                print(f"  failed: {name}: {failure['error']}")
        if outcome.left:
            print("  the same command goes on; a study needs the run folders of all its trainings")
        print("python reproduction/write_results_page.py writes the page")
        return outcome.code

    def _show(self, campaign) -> None:
        from reproduction.running import minutes_of
        from torchcaps.lab.reports.words import text_table
        from torchcaps.terminal import format_duration

        rows = []
        for point in campaign.points:
            jobs = list(point.jobs(self.scale))
            left = [job for job in jobs if not campaign.recorded(job)]
            minutes = sum(minutes_of(job, campaign.places) for job in left)
            studies = sum(not campaign.recorded((point, study)) for study in point.studies)
            rows.append(
                (
                    point.name,
                    point.title,
                    f"{len(jobs) - len(left)} of {len(jobs)}",
                    f"{len(point.studies) - studies} of {len(point.studies)}",
                    format_duration(60 * minutes) if left else "–",
                )
            )
            if self.list:
                rows += [_line(item, campaign) for item in point.items]
        print(text_table(rows, ("point", "what", "trainings", "studies", "time left"), right=(2, 3, 4)))
        print(f"about {format_duration(60 * campaign.minutes_left())} of one core in all\n")


def _line(item, campaign) -> tuple[str, ...]:
    from reproduction.base import Job

    done = sum(campaign.recorded(Job("", item, seed, campaign.scale)) for seed in item.seeds)
    what = " ".join((item.recipe, *item.overrides(campaign.scale)))
    return ("", f"  {item.name}: {what}", f"{done} of {len(item.seeds)}", "", "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code is 2 where its options are wrong."""
    command = tyro.cli(Reproduce, prog="python -m reproduction", args=arguments)
    try:
        return command.run()
    except ValueError as error:
        print(f"reproduction: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
