"""Tables and figures of the suites that have no table of contenders: small layers, busy machines, growth, paths."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

from torchcaps.routing import ROUTINGS


def small_table(record: dict) -> str:
    """Ratios of small layers against plain einsum."""
    lines = [
        "## Small layers",
        "",
        "How many times faster than plain einsum: vectors of 8 to 10 parents of 16, medians of interleaved repeats "
        f"({record['machine']}, torch {record['torch']}, {_kernels(record)}). The mean is {record['mean']:.2f}×; the "
        f"target is {record['targets']['mean']:g}×, and {record['targets']['each']:g}× everywhere."
        + _explain_share(record),
        "",
        "| layer | inference, 1 thread | inference, 2 | training, 1 thread | training, 2 |",
        "|---|---|---|---|---|",
    ]
    cells: dict[tuple, dict[tuple, dict]] = {}
    for case in record["cases"]:
        key = case["routing"], case["children"], case["examples"], case.get("weights", "pairs")
        row = cells.setdefault(key, {})
        row[case["task"], case["threads"]] = case
    for (routing, children, examples, weights), row in cells.items():
        shown = [_small_cell(row[task, threads], record) for task in ("inference", "training") for threads in (1, 2)]
        layer = f"{ROUTINGS[routing].title}{', shared weights' if weights == 'shared' else ''}"
        lines.append(f"| {layer}, {children:,} children, batch {examples} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def _small_cell(case: dict, record: dict) -> str:
    missed = " — missed" if case["faster"] < record["targets"]["each"] else ""
    share = _find_share(case.get("operations"), case["seconds"], record, case["threads"])
    shown = f"{1e3 * case['seconds']:.2f} ms" + (f", {share}" if share else "")
    return f"{case['faster']:.2f}× ({shown}){missed}"


def format_share(share: float) -> str:
    """A percentage, with a decimal if it is small."""
    return f"{100 * share:.{1 if share < 0.005 else 0}f} %"


def _find_share(operations: float | None, seconds: float, record: dict, threads: int) -> str:
    """The share of the machine's rate of matrix products; empty in a record that lacks what it takes."""
    rate = record.get("product_rate")
    rate = rate[str(threads)] if isinstance(rate, dict) else rate
    return format_share(operations / seconds / rate) if operations and rate else ""


def _explain_share(record: dict) -> str:
    rate = record.get("product_rate")
    if not rate:
        return ""
    rates = rate.values() if isinstance(rate, dict) else [rate]
    where = " and ".join(f"{each / 1e9:.0f}" for each in rates)
    on = " on 1 and 2 threads" if isinstance(rate, dict) else ""
    without = " Fixed-point routing has no share, since its iterations depend on the inputs." if on else ""
    return (
        f" Matrix products run at {where} GFLOP/s{on} here; a share is the part of that rate that the formula's "
        f"multiplications and additions come to, with the votes built once.{without}"
    )


def load_table(record: dict) -> str:
    """Steps alone and beside busy processes."""
    lines = [
        "## Busy machines",
        "",
        f"A step alone and while {record['busy']} other processes keep {record['busy']} cores busy, on "
        f"{record['threads']} threads; medians of {record['repeats']} ({record['machine']}, torch {record['torch']}, "
        f"{_kernels(record)}). Target: at most 4× the time alone, and still ahead." + _explain_share(record),
        "",
        "| work | alone | busy | slower | against | ahead of it when busy |",
        "|---|---|---|---|---|---|",
    ]
    for case in record["cases"]:
        missed = "" if case["reached"] else " — missed"
        share = _find_share(case.get("operations"), case["alone"], record, record["threads"])
        alone = f"{case['alone']:.3f} s" + (f" ({share})" if share else "")
        lines.append(
            f"| {case['title']} | {alone} | {case['busy']:.3f} s | {case['slower']:.1f}×{missed} | "
            f"{case['opponent']} | {case['ahead']:.1f}× |"
        )
    return "\n".join(lines) + "\n"


def growth_table(record: dict) -> str:
    """Exponents of the time in each size."""
    lines = [
        "## Growth",
        "",
        "The exponent of the time of a training step in each size, over a 16-fold range; 1 is linear "
        f"({record['threads']} threads, {_kernels(record)}). Memory beyond inputs and gradients: "
        f"{record['memory'][0]:.0f} MB for 256 examples, {record['memory'][1]:.0f} MB for 1,024."
        + _explain_share(record),
        "",
        "| size | from | to | share at the largest | exponent | target |",
        "|---|---|---|---|---|---|",
    ]
    for case in record["cases"]:
        missed = "" if case["reached"] else " — missed"
        operations = (case.get("operations") or [None])[-1]
        share = _find_share(operations, case["seconds"][-1], record, record["threads"])
        lines.append(
            f"| {case['axis']} | {case['sizes'][0]:,} | {case['sizes'][-1]:,} | {share} | {case['exponent']:.2f} | "
            f"0.95 to 1.1{missed} |"
        )
    return "\n".join(lines) + "\n\n![Time against size](images/growth.svg)\n"


def paths_table(record: dict) -> str:
    """Where each path is the fastest."""
    lines = [
        "## Paths",
        "",
        "Processor time of dynamic and EM routing of one dense layer on each path, on one thread: what the "
        "[cost model](fast.md#the-path-by-size) is fitted to. Plain einsum is there for comparison.",
        "",
        "| task | numbers of votes | of weights | plain | native | blocks | einsum |",
        "|---|---|---|---|---|---|---|",
    ]
    for size in record["sizes"]:
        shown = []
        for path in ("plain", "native", "blocks"):
            seconds = size["seconds"].get(path)
            best = seconds == min(size["seconds"].values())
            text = "" if seconds is None else f"{1e3 * seconds:.2f} ms"
            shown.append(f"**{text}**" if best else text)
        shown.append(f"{1e3 * size['einsum']:.2f} ms" if "einsum" in size else "")
        lines.append(f"| {size['task']} | {size['votes']:,} | {size['weights']:,} | {' | '.join(shown)} |")
    figure = "![Time of the paths against the number of examples](images/paths.svg)"
    return "\n".join([*lines, "", figure, "", "A dotted line is where the cheapest path changes.", ""])


def _kernels(record: dict) -> str:
    return "with native kernels" if record.get("kernels") else "without native kernels"


def draw_growth(record: dict, path: Path) -> None:
    """Time against each size, with a line of exponent one."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    for case in record["cases"]:
        relative = [size / case["sizes"][0] for size in case["sizes"]]
        seconds = [each / case["seconds"][0] for each in case["seconds"]]
        axes.loglog(relative, seconds, marker="o", label=f"{case['axis']}, exponent {case['exponent']:.2f}")
    axes.loglog([1, 16], [1, 16], color="gray", linestyle="--", label="linear")
    axes.set_xlabel("size, relative to the smallest")
    axes.set_ylabel("time, relative")
    axes.legend()
    _save(figure, path)


def draw_paths(record: dict, path: Path) -> None:
    """Time against the number of examples: a row of panels for each task, in it one for each number of weights that was
    measured with three batches or more."""
    from matplotlib.figure import Figure

    batches = Counter(size["weights"] for size in record["sizes"] if size["task"] == "inference")
    weights = [number for number, many in batches.items() if many >= 3]
    figure = Figure(figsize=(4 * len(weights), 6.2), layout="constrained")
    rows = figure.subplots(2, len(weights), sharey="row", squeeze=False)
    for task, row in zip(("inference", "training"), rows, strict=True):
        for axes, number in zip(row, weights, strict=True):
            sizes = [size for size in record["sizes"] if (size["task"], size["weights"]) == (task, number)]
            examples = [size["votes"] * 8 // number for size in sizes]  # poses of 8 numbers
            for name in ("plain", "native", "blocks"):
                if all(name in size["seconds"] for size in sizes):
                    axes.loglog(examples, [1e3 * size["seconds"][name] for size in sizes], "o-", label=name)
            if all("einsum" in size for size in sizes):
                axes.loglog(examples, [1e3 * size["einsum"] for size in sizes], "x--", color="gray", label="einsum")
            cheapest = [min(size["seconds"], key=size["seconds"].get) for size in sizes]
            for place, (before, after) in enumerate(pairwise(cheapest)):
                if before != after:
                    axes.axvline((examples[place] * examples[place + 1]) ** 0.5, color="gray", linestyle=":")
            axes.set_xticks(examples, [str(each) for each in examples])
            axes.minorticks_off()
            axes.set_title(f"{task}, {number:,} weights")
            axes.set_xlabel("examples")
        row[0].set_ylabel("ms")
    rows[0, 0].legend()
    _save(figure, path)


def _save(figure, path: Path) -> None:
    import matplotlib

    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context({"svg.hashsalt": "torchcaps", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})
