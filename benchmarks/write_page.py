"""Put the recorded benchmarks into docs/benchmarks.md, and their ratios into the README.

The records are written by ``python -m benchmarks all --out-dir benchmarks/records``, or for a single suite by ``python
-m benchmarks routing --out benchmarks/records/routing.json``. Run it as ``python -m benchmarks.write_page``.
"""

import json
from pathlib import Path

from benchmarks.further_tables import (
    draw_growth,
    draw_paths,
    format_share,
    growth_table,
    load_table,
    paths_table,
    small_table,
)
from benchmarks.model_cases import LITERAL, NO_ROUTING
from benchmarks.text_cases import ENCODER

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
README = ROOT / "README.md"
SUITES = ("routing", "models", "layers", "training", "text", "vectors")
RECORDS = {name: ROOT / "benchmarks" / "records" / f"{name}.json" for name in SUITES}
FURTHER = {"small": small_table, "load": load_table, "growth": growth_table, "costs": paths_table}
FITTED = ("costs",)
UNKNOWN = "The records do not say which run they are of.\n"
FIGURES = {"growth": draw_growth, "costs": draw_paths}
BOUNDS = """## What bounds the time

The inputs of a layer are small and its votes are not, so no case is bound by reading its inputs. The native
kernels make the votes in registers for every pass, which multiplies the operations. Dynamic routing of three
iterations makes them nine times: for three mixes and two agreements, and in the backward pass for the gradients of
all but the first mix. With the way back to poses and weights that is about 200 multiplications and additions for
each number of the votes, where the formula with votes built once has 78: at the full rate of matrix products the
share would be 38 %.

EM routing of three iterations makes the votes fourteen times: for an origin, three means with variances and two
distances; in the backward pass for the distances again, for five gradients and for the way back. One pass for
agreement, softmax and mix would make votes once instead of twice in an iteration of dynamic routing or attention; it
is not there, since routings would no longer be written in primitives. The closed form takes seven matrix products of
all features, parents and children for every iteration but the first, two of them forward: 10.6 billion operations for
the smallNORB layer.

A network is no faster than its backbone, which its opponent has too: its time without routing stands beside each
network. In Heinsen's smallNORB network most of that is two convolutions and the passes between them over maps of 94×94
(45 MB each). The convolutions of Tsai's ResNet network come to 98 billion operations the direct way; Winograd's
transforms have a quarter of the multiplications and write 2.25 times the numbers. In CapsNet it is the convolution of
the primary capsules, by Fourier transforms with a sixth of the multiplications. Even routing that takes no
time would make the networks no more than this many times faster than literal routing, by the fastest repeats: {most}.

Growth is measured where neither the fixed costs of calls nor the change from keeping pairs to making them anew
falls into the range: below that, time grows more slowly than size.
"""
COUNTED = {  # what the share of the machine's rate counts
    "routing": "with the votes built once",
    "models": "with the votes built once and convolutions the direct way (transforms take fewer, so that it may exceed "
    "100 %)",
    "vectors": "in closed form",
    "layers": "with the votes built once; fixed-point routing has none, since its iterations depend on the inputs",
    "text": "with the votes built once, forward",
}
BEGIN, END = "<!-- speeds: written from the results -->\n", "<!-- end of speeds -->\n"
README_BEGIN, README_END = "<!-- speed:begin -->\n", "<!-- speed:end -->\n"


def tables() -> str:
    """All records that there are, one table each, and which run they are of."""
    found = {name: json.loads(path.read_text()) for name, path in RECORDS.items() if path.exists()}
    further = {name: ROOT / "benchmarks" / "records" / f"{name}.json" for name in FURTHER}
    others = {name: json.loads(path.read_text()) for name, path in further.items() if path.exists()}
    parts = {
        name: shares(name, each) if "share" in each["cases"][0] else table(name, each) for name, each in found.items()
    }
    parts |= {name: FURTHER[name](each) for name, each in others.items()}
    return "\n".join([*name_runs(parts, found | others), BOUNDS.format(most=_name_most(found["models"]))])


def name_runs(parts: dict[str, str], records: dict[str, dict]) -> list[str]:
    """The tables, after one line about the run of all of them; where runs differ, each with a line about its own.

    What cost models are fitted to is measured by itself and has no run.
    """
    runs = {name: describe_run(records[name]) for name in parts if name not in FITTED}
    if len(set(runs.values())) == 1:
        (run,) = set(runs.values())
        return [f"All suites are of one {run}.\n" if run else UNKNOWN, *parts.values()]
    return [
        part.replace("\n\n", f"\n\nThis is of {'a ' + runs[name] if runs[name] else 'an earlier run'}. ", 1)
        if name in runs
        else part
        for name, part in parts.items()
    ]


def describe_run(record: dict) -> str:
    """The run that a record is of; empty for a record that does not say it."""
    run = record.get("run")
    if run is None:
        return ""
    return f"run: {run['started']}, commit {run['commit']}, {run['machine']}, load {run['load_before']} at its start"


def _name_most(record: dict) -> str:
    """How many times faster each network would be without any routing, by the fastest of all repeats: the two differ
    little where routing is cheap."""
    found = []
    for case in record["cases"]:
        seconds = {who: measured["fastest"] for who, measured in case["measurements"].items()}
        found.append(f"{case['title'].split(',')[0]} {seconds[LITERAL] / seconds[NO_ROUTING]:.1f}×")
    return "; ".join(found)


def draw_figures() -> None:
    """The figures of all records that there are."""
    for name, draw in FIGURES.items():
        path = ROOT / "benchmarks" / "records" / f"{name}.json"
        if path.exists():
            draw(json.loads(path.read_text()), PAGE.parent / "images" / f"{'paths' if name == 'costs' else name}.svg")


def shares(name: str, record: dict) -> str:
    """A suite whose cases are shares of something, without opponents."""
    lines = [
        f"## {name.capitalize()}",
        "",
        f"{record['threads']} threads where nothing else is said ({record['machine']}, torch {record['torch']}); the "
        f"machine's load was {record['load']} when the run ended.",
        "",
        "| what | share | target |",
        "|---|---|---|",
    ]
    for case in record["cases"]:
        wanted = f"at least {100 * case['target']:.0f} %" + ("" if case["reached"] else " — missed")
        lines.append(f"| {case['title']} | {100 * case['share']:.1f} % | {wanted} |")
    return "\n".join(lines) + "\n"


def table(name: str, record: dict) -> str:
    lines = [
        f"## {name.capitalize()}",
        "",
        f"Medians of {record['repeats']} interleaved repeats, each after an untimed one, on {record['threads']} "
        f"threads ({record['machine']}, torch {record['torch']}); the machine's load was {record['load']} "
        "when the run ended. Peak memory is above the idle process.",
        "",
        "| work | by | time | peak memory | faster | leaner | target |",
        "|---|---|---|---|---|---|---|",
    ]
    if record.get("product_rate") and any(case.get("operations") for case in record["cases"]):
        lines[2] += (
            f" Matrix products run at {record['product_rate'] / 1e9:.0f} GFLOP/s here; in brackets is the share "
            f"of it that the formula's multiplications and additions come to, {COUNTED[name]}."
        )
    if record.get("copy_rate") and any(case.get("inputs") for case in record["cases"]):
        lines[2] += (
            f" Memory is copied at {record['copy_rate'] / 1e9:.0f} GB/s; the second number is the share of that which "
            "reading the inputs in both passes and writing their gradients would take."
        )
    for case in record["cases"]:
        against = {comparison["opponent"]: comparison for comparison in case["comparisons"]}
        for place, (who, measured) in enumerate(case["measurements"].items()):
            row = [case["title"] if place == 0 else "", who]
            limit = f" (at most {case['limit']:.0f})" if place == 0 and case["limit"] is not None else ""
            share = "" if who in (NO_ROUTING, ENCODER) else _share(case, measured, record)
            row += [f"{measured['seconds']:.3f} s{share}"]
            row += [f"{measured['mebibytes']:.0f} MB{limit}"]
            row += _ratios(against[who]) if who in against else ["", "", ""]
            lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def _share(case: dict, measured: dict, record: dict) -> str:
    shares = []
    if case.get("operations") and record.get("product_rate"):
        shares.append(case["operations"] / record["product_rate"])
    if case.get("inputs") and record.get("copy_rate"):
        shares.append(3 * 4 * case["inputs"] / record["copy_rate"])  # twice read, once written, in single precision
    text = ", ".join(format_share(share / measured["seconds"]) for share in shares)
    return f" ({text})" if shares else ""


def _ratios(seen: dict) -> list[str]:
    wanted = f"{seen['faster_target']:g}×"
    missed = seen["faster"] < seen["faster_target"]
    if seen["leaner_target"] is not None:
        wanted += f", {seen['leaner_target']:g}×"
        missed |= seen["leaner"] < seen["leaner_target"]
    return [f"{seen['faster']:.1f}×", f"{seen['leaner']:.1f}×", wanted + (" — missed" if missed else "")]


def ratios() -> str:
    """The routings and models in one short table: how many times faster and leaner than which opponent."""
    lines = ["| work | against | faster | less memory |", "|---|---|---|---|"]
    for name in ("routing", "models"):
        for case in json.loads(RECORDS[name].read_text())["cases"]:
            for place, seen in enumerate(case["comparisons"]):
                work = case["title"] if place == 0 else ""
                lines.append(f"| {work} | {seen['opponent']} | {seen['faster']:.1f}× | {seen['leaner']:.1f}× |")
    small = json.loads((ROOT / "benchmarks" / "records" / "small.json").read_text())
    least = min(case["faster"] for case in small["cases"])
    lines += [
        "",
        f"Small layers gain less: {small['mean']:.1f}× plain einsum in the mean of {len(small['cases'])} cases of "
        f"1 to 64 images, {least:.1f}× in the worst ([small layers](docs/benchmarks.md#small-layers)).",
    ]
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The page with its tables made anew."""
    return _replace_between(text, BEGIN, END, tables())


def readme(text: str) -> str:
    """The README with its table of ratios made anew."""
    return _replace_between(text, README_BEGIN, README_END, ratios())


def _replace_between(text: str, begin: str, end: str, table: str) -> str:
    before, rest = text.split(begin)
    _, after = rest.split(end)
    return before + begin + table + end + after


if __name__ == "__main__":
    draw_figures()
    PAGE.write_text(page(PAGE.read_text()))
    README.write_text(readme(README.read_text()))
