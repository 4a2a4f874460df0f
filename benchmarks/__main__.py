"""``python -m benchmarks routing``: a table of ratios, and the same as JSON; ``all`` runs the suites in one go."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from benchmarks import growth_cases, load_cases, runs, small_cases
from benchmarks.cases import OURS, ROUTING
from benchmarks.export_cases import EXPORT
from benchmarks.layer_cases import list_layers
from benchmarks.model_cases import MODELS
from benchmarks.peers import find_cases
from benchmarks.runner import CaseResult, record, run_case, write
from benchmarks.text_cases import TEXT
from benchmarks.training_cases import CASES as TRAINING
from benchmarks.training_cases import lines as training_lines
from benchmarks.training_cases import record as training_record
from benchmarks.training_cases import run_training
from benchmarks.vector_cases import VECTORS

SUITES = {"routing": ROUTING, "models": MODELS, "text": TEXT, "export": EXPORT, "vectors": VECTORS}


@dataclass(frozen=True)
class BenchmarkOptions:
    """Measure routings, or whole models, against the usual ways to write them; or the training loop by itself."""

    suite: Annotated[str, tyro.conf.Positional]
    """Which cases to run: routing, models, text, export, vectors, layers, training, small (layers), load (busy
    processes beside), growth or peers (published repositories); or all, which runs the suites of the page one after
    another, and peers too if there is a folder of them."""
    only: tuple[str, ...] = ()
    """Names of single cases, or of suites for all; everything if left out."""
    routing: tuple[str, ...] = ()
    """For layers: names of routings, or package.module:Class of your own; all of the package if left out."""
    folder: Path | None = None
    """For peers and all: the folder with clones of published repositories."""
    repeats: int = 5
    """Rounds of timing; the medians are compared."""
    threads: int = 2
    """Threads of each contender."""
    out: Path | None = None
    """Where to write the JSON of one suite."""
    out_dir: Path | None = None
    """For all: the folder to write a JSON for each suite to."""


def table(outcomes: list[CaseResult]) -> Table:
    """One row for each contender, short enough for a terminal of 80 columns."""
    found = Table("case", "contender", "time", "memory", "faster", "leaner", "", box=None, pad_edge=False)
    for outcome in outcomes:
        against = {comparison.opponent: comparison for comparison in outcome.comparisons}
        for who, measured in outcome.measurements.items():
            row = [outcome.name if who == OURS else "", who]
            limit = f" ≤ {outcome.limit:.0f} MB" if who == OURS and outcome.limit is not None else ""
            row += [f"{measured.seconds:.3f} s", f"{measured.mebibytes:.0f} MB{limit}"]
            if who in against:
                seen = against[who]
                row += [f"{seen.faster:.1f}× ≥ {seen.faster_target:g}×"]
                row += [f"{seen.leaner:.1f}×" + (f" ≥ {seen.leaner_target:g}×" if seen.leaner_target else "")]
                row += ["✓" if seen.reached else "[bold]missed[/bold]"]
            found.add_row(*row)
    return found


def training(options: BenchmarkOptions, console: Console) -> int:
    """The suite of the training loop, whose cases have no opponents."""
    outcomes = run_training(options.only, options.threads)
    for line in training_lines(outcomes):
        console.print(line, highlight=False)
    _write(options, console, training_record(outcomes, threads=options.threads))
    return 0 if all(outcome.reached for outcome in outcomes) else 1


def small(options: BenchmarkOptions, console: Console) -> int:
    """Small layers against plain einsum, on one thread and on two."""
    results = small_cases.run_small()
    return _finish(
        options, console, small_cases.lines(results), small_cases.record(results), small_cases.reached(results)
    )


def load(options: BenchmarkOptions, console: Console) -> int:
    """Steps beside busy processes."""
    results = load_cases.run_load(options.repeats, options.threads)
    content = load_cases.record(results, repeats=options.repeats, threads=options.threads)
    return _finish(options, console, load_cases.lines(results), content, all(each.reached for each in results))


def growth(options: BenchmarkOptions, console: Console) -> int:
    """Time and memory against size."""
    results = growth_cases.run_growth(options.repeats, options.threads)
    content = growth_cases.record(*results, repeats=options.repeats, threads=options.threads)
    return _finish(options, console, growth_cases.lines(*results), content, growth_cases.reached(*results))


def _finish(options: BenchmarkOptions, console: Console, lines: list[str], content: dict, reached: bool) -> int:
    for line in lines:
        console.print(line, highlight=False)
    _write(options, console, content)
    return 0 if reached else 1


def _write(options: BenchmarkOptions, console: Console, content: dict) -> None:
    """Write the record, if it is asked for, with a run of its own."""
    if options.out is not None:
        write(options.out, content | {"run": runs.describe_run()})
        console.print(f"written to {options.out}", highlight=False)


def run_all(options: BenchmarkOptions, console: Console) -> int:
    """All suites of the page in one run."""
    known = [*runs.SUITES, "peers"] if options.folder is not None else list(runs.SUITES)
    unknown = [name for name in options.only if name not in known]
    if unknown:
        console.print(f"no suite {unknown[0]!r} in all; there are {', '.join(known)}", style="red")
        return 2

    def say(line: str) -> None:
        console.print(line, highlight=False, soft_wrap=True)
        sys.stdout.flush()  # before the suite's own process prints

    results = runs.run_suites(
        [name for name in known if not options.only or name in options.only],
        repeats=options.repeats,
        threads=options.threads,
        out_dir=options.out_dir,
        folder=options.folder,
        say=say,
    )
    for line in runs.summarize(results, options.out_dir):
        say(line)
    return 0 if all(result.reached for result in results) else 1


WHOLE = {"training": training, "small": small, "load": load, "growth": growth}


def main() -> int:
    options = tyro.cli(BenchmarkOptions, prog="python -m benchmarks")
    console = Console()
    if options.repeats < 1 or options.threads < 1:
        console.print(f"repeats and threads are at least 1; got {options.repeats} and {options.threads}", style="red")
        return 2
    if (options.out if options.suite == "all" else options.out_dir) is not None:
        console.print("--out is for a single suite, --out-dir for all", style="red")
        return 2
    if options.suite == "all" and not options.routing:
        return run_all(options, console)
    suites = SUITES | {"layers": list_layers(options.routing), "peers": {}}
    if options.suite == "peers":
        if options.folder is None:
            console.print("peers needs --folder, which holds clones of published repositories", style="red")
            return 2
        try:
            suites["peers"], problems = find_cases(options.folder)
        except ValueError as error:
            console.print(str(error), style="red")
            return 2
        for problem in problems:
            console.print(f"left out: {problem}", highlight=False, soft_wrap=True)
    if options.suite not in (*suites, *WHOLE, "all"):
        console.print(f"no suite {options.suite!r}; there are {', '.join((*suites, *WHOLE, 'all'))}", style="red")
        return 2
    if options.routing and options.suite != "layers":
        console.print(f"--routing is for the suite layers; got {options.suite}", style="red")
        return 2
    cases = suites.get(options.suite, TRAINING if options.suite == "training" else {})
    unknown = [name for name in options.only if name not in cases]
    if unknown:
        console.print(f"no case {unknown[0]!r}; there are {', '.join(cases)}", style="red")
        return 2
    if options.suite in WHOLE:
        return WHOLE[options.suite](options, console)
    outcomes = []
    for name, make in suites[options.suite].items():
        if options.only and name not in options.only:
            continue
        case = make()
        console.print(f"{name}: {case.title}", highlight=False)
        outcomes.append(run_case(name, case, repeats=options.repeats, threads=options.threads))
    console.print()
    console.print(table(outcomes))
    if options.out is not None:  # the record measures the machine's rates too
        _write(options, console, record(outcomes, repeats=options.repeats, threads=options.threads))
    return 0 if all(outcome.reached for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
