"""All suites of the benchmark in one run, whose records belong together.

Each suite is a process of its own, so that nothing of one stays for the next and a suite that fails stops no other.
Every record says which run it is of: when the run started, of which commit and on what machine.
"""

import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.misses import find_misses
from torchcaps.files import write_json

ROOT = Path(__file__).resolve().parent.parent
STARTED, LOAD_BEFORE = datetime.now(UTC), os.getloadavg()[0]
# Each suite with what it measures and about how many minutes it takes on two idle cores.
SUITES = {
    "routing": ("routings against the usual ways to write them", 6),
    "models": ("training steps of whole networks", 8),
    "layers": ("layers by every routing", 3),
    "vectors": ("vector routing", 1),
    "small": ("small layers against plain einsum", 3),
    "load": ("steps beside busy processes", 2),
    "growth": ("time and memory against size", 2),
    "text": ("routing beside a language model", 1),
    "training": ("the training loop", 1),
}


@dataclass(frozen=True)
class SuiteResult:
    """How a suite ended: the targets that it missed, why it failed or why it was left out."""

    name: str
    seconds: float
    misses: tuple[tuple[str, str], ...] = ()
    problem: str = ""
    left_out: str = ""

    @property
    def reached(self) -> bool:
        return not self.misses and not self.problem

    def describe(self) -> str:
        """One line."""
        missed = f"{len(self.misses)} target{'s' if len(self.misses) > 1 else ''} missed" if self.misses else ""
        ended = self.left_out or self.problem or missed or "all targets reached"
        return f"{self.name}: {ended} ({format_time(self.seconds)})"


def describe_run() -> dict[str, str | float]:
    """What identifies a run: its start in UTC, the commit, the machine, and the load that the run began with."""
    return {
        "started": STARTED.strftime("%Y-%m-%d %H:%M:%S UTC"),
        "commit": _name_commit(),
        "machine": f"{_name_processor()}, {os.cpu_count()} cores",
        "load_before": round(LOAD_BEFORE, 2),
    }


def _name_commit() -> str:
    """The commit that is checked out, with a mark if files differ from it."""
    command = ["git", "describe", "--always", "--dirty=-changed", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:  # no git
        return "unknown"
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def _name_processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{platform.machine()} ({names[0]})" if names else platform.machine()


def run_suites(
    names: Sequence[str],
    *,
    repeats: int,
    threads: int,
    out_dir: Path | None = None,
    folder: Path | None = None,
    say: Callable[[str], None] = print,
) -> list[SuiteResult]:
    """Run suites one after another and stamp their records with one run.

    Args:
        names: suites, in this order.
        repeats: rounds of timing.
        threads: threads of each contender.
        out_dir: where records are written; nowhere if left out.
        folder: clones of published repositories, for the suite ``peers``.
        say: prints a line of progress.
    """
    run = describe_run()
    about = sum(SUITES[name][1] for name in names if name in SUITES)
    say(f"Run of {run['started']}: commit {run['commit']}, {run['machine']}, load {run['load_before']}.")
    say(f"{len(names)} suites, about {about} minutes on two idle cores.")
    results = []
    for place, name in enumerate(names, 1):
        title, minutes = SUITES.get(name, ("published repositories", 1))
        say(f"\n[{place}/{len(names)}] {name}: {title}, about {minutes} min")
        results.append(_run_suite(name, run, repeats, threads, out_dir, folder))
        say(results[-1].describe())
    return results


def _run_suite(
    name: str, run: dict, repeats: int, threads: int, out_dir: Path | None, folder: Path | None
) -> SuiteResult:
    if name == "text" and importlib.util.find_spec("transformers") is None:
        return SuiteResult(name, 0.0, left_out="left out, as it needs transformers: pip install 'torchcaps[text]'")
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / f"{name}.json"
        command = [sys.executable, "-m", "benchmarks", name, "--out", str(path)]
        command += ["--repeats", str(repeats), "--threads", str(threads)]
        command += ["--folder", str(folder)] if name == "peers" else []
        done = subprocess.run(command, cwd=ROOT, check=False)
        seconds = time.perf_counter() - start
        if not path.exists():
            return SuiteResult(name, seconds, problem=f"failed with exit code {done.returncode}")
        record = json.loads(path.read_text()) | {"run": run}
    if out_dir is not None:
        out_dir.mkdir(parents=True, exist_ok=True)
        write_json(out_dir / f"{name}.json", record, indent=1)
    return SuiteResult(name, seconds, tuple(find_misses(record)))


def summarize(results: Sequence[SuiteResult], out_dir: Path | None = None) -> list[str]:
    """The end of a run: each suite in a line, and below it the targets that it missed."""
    lines = [f"\nThe whole run took {format_time(sum(each.seconds for each in results))}."]
    for each in results:
        lines.append(each.describe())
        lines += [f"  {case}: {miss}" for case, miss in each.misses]
    if out_dir is not None:
        lines.append(f"Records are in {out_dir}; python -m benchmarks.write_page puts those of benchmarks/records into")
        lines.append("docs/benchmarks.md and README.md.")
    return lines


def format_time(seconds: float) -> str:
    """Minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
