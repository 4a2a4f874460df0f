"""Which targets a record misses."""

import statistics
from collections.abc import Iterator

from benchmarks import growth_cases
from benchmarks.cases import OURS


def find_misses(record: dict) -> Iterator[tuple[str, str]]:
    """The cases of a record that miss a target, and what they miss."""
    for case in record["cases"]:
        name = case.get("name") or case.get("axis") or name_layer(case)
        for seen in case.get("comparisons", ()):
            for ratio in ("faster", "leaner"):
                target = seen[f"{ratio}_target"]
                if target is not None and seen[ratio] < target:
                    yield name, f"{seen[ratio]:.3f}× {ratio} than {seen['opponent']}, not {target:g}×"
        if case.get("limit") is not None and case["measurements"][OURS]["mebibytes"] > case["limit"]:
            yield name, f"{case['measurements'][OURS]['mebibytes']:.0f} MB, more than {case['limit']:.0f}"
        if not case.get("reached", True):
            yield name, "not reached"
    if "targets" in record:
        yield from find_small_misses(record)
    if "memory" in record and record["memory"][1] > growth_cases.MEMORY * record["memory"][0]:
        yield "memory", f"grows from {record['memory'][0]:.0f} to {record['memory'][1]:.0f} MB"


def find_small_misses(record: dict) -> Iterator[tuple[str, str]]:
    """The same of small layers, whose targets are for a weight for each pair."""
    cases = [case for case in record["cases"] if case.get("weights", "pairs") == "pairs"]
    for case in cases:
        if case["faster"] < record["targets"]["each"]:
            yield name_layer(case), f"{case['faster']:.3f}×, not {record['targets']['each']:g}×"
    mean = statistics.geometric_mean(case["faster"] for case in cases)
    if mean < record["targets"]["mean"]:
        yield "mean", f"{mean:.3f}×, not {record['targets']['mean']:g}×"


def name_layer(case: dict) -> str:
    """The name of a small layer's case."""
    return "{routing}-{children}-{examples}-{task}-{threads}".format(**case)
