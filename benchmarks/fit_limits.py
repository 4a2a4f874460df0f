"""Measure the limits that bound what the cost models choose, and write what was found to docs/fast.md.

``python -m benchmarks.fit_limits --out benchmarks/records/limits.json`` takes at most six minutes: processor time on
one thread, all values of a limit in turns, the fastest of several repeats, and memory as the peak of a fresh process. A
limit that sizes are compared with is measured on both of its sides, at sizes around it; any other is set to several
values. Names of limits measure these alone, and with ``--write`` only the page is written again.
"""

import argparse
import json
import math
import time
from pathlib import Path

import torch

from benchmarks import cases
from benchmarks.fit_convolutions import put_between
from benchmarks.fit_limit_cases import LIMITS, MEGA, Limit, LimitCase, Work
from benchmarks.runner import describe_machine, measure_peak_memory, run_in_fresh_process
from torchcaps import kernels
from torchcaps.files import write_json, write_text

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "benchmarks" / "records" / "limits.json"
PAGE = ROOT / "docs" / "fast.md"
NEVER, ALWAYS = 0, 1 << 50  # a limit that nothing is within, and one that everything is within
WITHIN, BEYOND = "within", "beyond"
BEGIN, END = "<!-- limits: written from the record -->\n", "<!-- end of limits -->\n"


def measure_limit(limit: Limit, seconds: float) -> list[dict]:
    """The times of all cases of a limit at all values, or within it and beyond it."""
    found = []
    for case in limit.cases:
        keys = {str(value): value for value in limit.values} if case.size is None else {WITHIN: ALWAYS, BEYOND: NEVER}
        times = measure_in_turns(limit, keys, case.make(), seconds)
        found.append({"case": case.title, **({} if case.size is None else {"size": case.size}), "seconds": times})
        shown = ", ".join(f"{key} {1e3 * each:.2f} ms" for key, each in times.items())
        print(f"{limit.name}: {case.title}: {shown}", flush=True)
    return found


def measure_in_turns(limit: Limit, keys: dict[str, int], work: Work, seconds: float) -> dict[str, float]:
    """The least time of the work at each value: in rounds over all values, three at least."""
    least = dict.fromkeys(keys, math.inf)
    rounds, until = 0, time.monotonic() + seconds
    while rounds < 3 or time.monotonic() < until:
        for key, value in keys.items():
            with limit.set(value):
                least[key] = min(least[key], time_calls(work))
        rounds += 1
    return least


def time_calls(work: Work, seconds: float = 0.04) -> float:
    """The least processor time of a call, over so many seconds; the first call counts only if there is no other."""
    begin = time.process_time()
    work()
    least = time.process_time() - begin
    if least >= seconds / 2:
        return least
    least = math.inf
    while (start := time.process_time()) < begin + seconds:
        work()
        least = min(least, time.process_time() - start)
    return least


def measure_memory(limit: Limit) -> dict | None:
    """The peak of a fresh process under the limit, and for how much of what it bounds."""
    case = limit.memory
    if case is None:
        return None
    alone = cases.Case(case.title, {cases.OURS: lambda: make_under(limit, case)}, ())
    peak = run_in_fresh_process(measure_peak_memory, alone, cases.OURS, 1)
    print(f"{limit.name}: {case.title}: {peak / MEGA:.0f} MB", flush=True)
    return {"case": case.title, "of": case.size or limit.value, "bytes": peak}


def make_under(limit: Limit, case: LimitCase) -> Work:
    """The work of a case on the path that a limit is about."""
    work = case.make()

    def call() -> object:
        with limit.set(limit.value):
            return work()

    return call


def rate(found: dict, value: int) -> float:
    """How many times as long as at the best value of each case, on average over the cases."""
    logs = []
    for case in found["cases"]:
        seconds = case["seconds"]
        key = str(value) if "size" not in case else WITHIN if case["size"] <= value else BEYOND
        logs.append(math.log(seconds[key] / min(seconds.values())))
    return math.exp(sum(logs) / len(logs))


def count_bytes(found: dict, value: int) -> float:
    """The memory at a value of the limit."""
    return 0.0 if found["memory"] is None else found["memory"]["bytes"] * value / found["memory"]["of"]


def list_affordable(limit: Limit, found: dict) -> list[int]:
    """The values that were tried and whose memory is within the limit's budget."""
    return [value for value in limit.values if count_bytes(found, value) <= limit.budget]


def render(record: dict) -> str:
    """The table of the page."""
    lines = [
        "| limit | of | what it bounds | value | tried | time | at the values tried | memory |",
        "|---|---|---|---:|---|---:|---:|---:|",
    ]
    for limit in LIMITS:
        found, value = record["limits"][limit.name], limit.value
        rates = [rate(found, each) for each in limit.values]
        megabytes = f"{count_bytes(found, value) / MEGA:.0f} MB" if found["memory"] else ""
        lines.append(
            f"| `{limit.name}` | `{limit.module}` | {limit.what} | {name_power(value)} | "
            f"{name_power(limit.values[0])} to {name_power(limit.values[-1])} | {rate(found, value):.2f} | "
            f"{min(rates):.2f} to {max(rates):.2f} | {megabytes} |"
        )
    return "\n".join(lines) + "\n"


def name_power(value: int) -> str:
    """A number as a power of two where it is one, or a small multiple."""
    power = (value & -value).bit_length() - 1
    digits = str(power).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    odd = value >> power
    return str(value) if value < 1024 else f"2{digits}" if odd == 1 else f"{odd} · 2{digits}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="limits, of those that are measured; all if there are none")
    parser.add_argument("--out", type=Path, default=RECORD, help="the record")
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds for each case")
    parser.add_argument("--write", action="store_true", help="only write the page from the record")
    options = parser.parse_args()
    if not options.write:
        measure_all(options.names, options.out, options.seconds)
    if options.out.resolve() == RECORD:
        table = "\n" + render(json.loads(RECORD.read_text(encoding="utf-8"))) + "\n"
        write_text(PAGE, put_between(PAGE.read_text(encoding="utf-8"), BEGIN, END, table))


def measure_all(names: list[str], out: Path, seconds: float) -> None:
    """Measure limits and put them into the record, which keeps the others."""
    if not kernels.available():
        raise SystemExit("limits of the kernels cannot be measured without them; python torchcaps/kernels/build.py")
    begin, load = time.monotonic(), describe_machine()["load"]
    chosen = [limit for limit in LIMITS if not names or limit.name in names]
    known = json.loads(out.read_text(encoding="utf-8"))["limits"] if names and out.exists() else {}
    memory = {limit.name: measure_memory(limit) for limit in chosen}  # before any tensor of this process
    torch.set_num_threads(1)
    for limit in chosen:
        found = {"load": describe_machine()["load"], "memory": memory[limit.name]}
        known[limit.name] = found | {"cases": measure_limit(limit, seconds)}
        rates = ", ".join(f"{name_power(value)} {rate(known[limit.name], value):.2f}" for value in limit.values)
        print(f"{limit.name} is {name_power(limit.value)}; mean times, the best of each case is 1: {rates}", flush=True)
    write_json(out, describe_machine() | {"load": load, "limits": known}, indent=1)
    print(f"{time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
