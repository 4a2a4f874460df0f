"""Measure what each path of the votes costs, and write the cost model that ``torchcaps.votes.paths`` chooses by.

``python -m benchmarks.fit_costs`` measures dense layers of many sizes on every path, on one thread and in processor
time, what it costs to start a thread, and layers by shared weights. The times go to ``benchmarks/records/costs.json``,
the model fitted to them to ``torchcaps/votes/costs.py``. With ``--write`` it only writes the model again, with
``--sums`` it only measures the ways to sum up all votes, with ``--shared`` those to make votes by shared weights. The
model of a path is linear: a cost for each call, for each number of the votes, and for each number of the vote weights.
"""

import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import chain, combinations, product
from pathlib import Path as FilePath
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from benchmarks import opponents
from torchcaps import kernels, routing
from torchcaps.files import write_json
from torchcaps.kernels.functions import Kernel
from torchcaps.kernels.workspace import Workspace
from torchcaps.votes import Votes, dense_votes, shared_votes, summed
from torchcaps.votes.methods import Method, count_work
from torchcaps.votes.native import Tape
from torchcaps.votes.paths import Path, force_path, name_task

ROOT = FilePath(__file__).resolve().parent.parent
RECORD = ROOT / "benchmarks" / "records" / "costs.json"
MODULE = ROOT / "torchcaps" / "votes" / "costs.py"
# examples, children: parents are 10 of 16 numbers, children vectors of 8
SIZES = ((1, 8), (1, 32), (4, 32), (16, 32), (64, 32), (1, 288), (4, 288), (1, 1152), (4, 1152), (16, 1152))
# children, parents, rows and columns of poses, columns of votes
SUMS = (
    (32, 10, 1, 8, 16),
    (288, 10, 1, 8, 16),
    (1152, 10, 1, 8, 16),
    (32, 16, 4, 4, 4),
    (32, 10, 1, 16, 12),
    (32, 10, 1, 8, 5),
    (64, 3, 2, 3, 3),
)
# Shared weights: examples, children, parents, rows and columns of poses, columns of votes.
SHARED = (
    (1, 32, 10, 4, 4, 4),
    (16, 32, 10, 4, 4, 4),
    (64, 32, 10, 4, 4, 4),
    (1, 400, 10, 4, 4, 4),
    (16, 400, 10, 4, 4, 4),
    (64, 400, 10, 4, 4, 4),
    (4, 400, 64, 4, 4, 4),
    (20, 400, 64, 4, 4, 4),
    (1, 64, 10, 1, 8, 16),
    (64, 64, 10, 1, 8, 16),
    (16, 1000, 10, 1, 8, 16),
    (1, 50, 64, 1, 64, 2),
    (20, 100, 64, 1, 64, 2),
    (4, 64, 5, 1, 16, 8),
)
TASKS = ("inference", "training")
HEADER = '''"""What each path of the votes costs, in seconds.

Written by ``python -m benchmarks.fit_costs``, not by hand. A call costs so much, and so much more for each number of
the votes and for each number of the vote weights. What matters are the ratios.
"""

'''


def make_work(examples: int, children: int, task: str, *, einsum: bool = False) -> Callable[[], object]:
    """Dynamic and EM routing of one dense layer, forward or forward and backward; by plain einsum for comparison."""
    torch.manual_seed(0)
    leaves = [torch.randn(examples, children, 8) * 0.3, torch.randn(children, 10, 8, 16) * 0.1]
    beta, score = torch.zeros(10), torch.zeros(examples, children)

    def forward() -> Tensor:
        one = routing.dynamic_routing(dense_votes(leaves[0], leaves[1])).pose
        return (
            one.sum()
            + routing.em_routing(
                dense_votes(leaves[0], leaves[1]), score, beta_cost=beta, beta_active=beta, num_iters=3
            ).pose.sum()
        )

    def plain() -> Tensor:
        found, _ = opponents.em_einsum(leaves[0], leaves[1], score, beta, beta, routing.rising_inverse_temperature(3))
        return opponents.dynamic_einsum(leaves[0], leaves[1]).sum() + found.sum()

    work = plain if einsum else forward
    if task == "inference":
        return work
    leaves = [leaf.requires_grad_() for leaf in leaves]
    return lambda: torch.autograd.grad(work(), leaves)


def measure(work: Callable[[], object], seconds: float = 0.25) -> float:
    """The least processor time of a call, over about so many seconds."""
    work()
    least, until = float("inf"), time.process_time() + seconds
    while time.process_time() < until:
        start = time.process_time()
        work()
        least = min(least, time.process_time() - start)
    return least


def measure_paths() -> dict:
    """The times of all sizes on all paths."""
    torch.set_num_threads(1)
    paths = [path for path in Path if path is not Path.NATIVE or kernels.available()]
    found = []
    for task in TASKS:
        for examples, children in SIZES:
            work = make_work(examples, children, task)
            times = {}
            for path in paths:
                with force_path(path):
                    times[path.value] = measure(work)
            votes, weights = examples * children * 160, children * 1280
            einsum = measure(make_work(examples, children, task, einsum=True))
            found.append({"task": task, "votes": votes, "weights": weights, "seconds": times, "einsum": einsum})
            shown = {name: f"{1e3 * each:.2f} ms" for name, each in {**times, "einsum": einsum}.items()}
            print(task, examples, children, shown, flush=True)
    threads = measure_threads() if kernels.available() else None
    print("threads", threads)
    found += measure_without_kernels()
    return {
        "torch": torch.__version__,
        "machine": platform.machine(),
        "sizes": found,
        "threads": threads,
        "sums": measure_sums() if kernels.available() else None,
        "shared": measure_shared() if kernels.available() else None,
    }


def measure_sums(rounds: int = 4) -> list[dict]:
    """The least times of the sum of all votes, forward and backward, by the kernel and as a product, on one thread and
    on two. In rounds: other programs disturb two threads for a while."""
    found: dict[tuple, dict] = {}
    for _ in range(rounds):
        for (children, parents, rows, columns, out_columns), examples in product(SUMS, (1, 4, 16, 64, 256)):
            pose = torch.randn(examples, 1, children, rows, columns)
            matrix, weight = torch.randn(children, parents, columns, out_columns), torch.rand(examples, 1, children, 1)
            arriving = [torch.randn(examples, 1, parents, rows * out_columns)]
            ways = {f"kernel {summed.fill_vectors(columns, out_columns)}": summed._KERNEL, "product": summed._PRODUCT}
            for (way, kernel), threads in product(ways.items(), (1, 2)):
                torch.set_num_threads(threads)
                with patch.object(summed, "count_threads", lambda pose, matrix, threads: threads):
                    seconds = measure_elapsed(partial(_sum_up, kernel, (pose, matrix, weight), arriving))
                case = {"way": way, "pose": list(pose.shape), "matrix": list(matrix.shape), "threads": threads}
                before = found.get((way, pose.shape, matrix.shape, threads), {"seconds": seconds})["seconds"]
                found[way, pose.shape, matrix.shape, threads] = case | {"seconds": min(seconds, before)}
    torch.set_num_threads(1)
    return list(found.values())


def measure_elapsed(work: Callable[[], object], seconds: float = 0.05) -> float:
    """The least elapsed time of a call, over about so many seconds."""
    work()
    least, until = float("inf"), time.perf_counter() + seconds
    while (start := time.perf_counter()) < until:
        work()
        least = min(least, time.perf_counter() - start)
    return least


def _sum_up(kernel: Kernel, tensors: tuple[Tensor, ...], arriving: list[Tensor]) -> None:
    kernel.forward(*tensors)
    kernel.backward(tensors, arriving, (True, True, False))


def make_shared_work(sizes: tuple[int, ...], task: str, method: Method) -> Callable[[], object]:
    """Dynamic, EM and Heinsen's routing of a layer by shared weights, one after the other."""
    examples, children, parents, rows, columns, out_columns = sizes
    torch.manual_seed(0)
    leaves = [torch.randn(examples, children, rows * columns), torch.randn(parents, columns, out_columns) * 0.3]
    beta, use, score = torch.zeros(parents), torch.zeros(1, parents), torch.zeros(examples, children)

    def make() -> Votes:
        if method == "few":
            return dense_votes(leaves[0], leaves[1].unsqueeze(0), rows=rows)
        return shared_votes(leaves[0], leaves[1], rows=rows, method=method)

    def forward() -> Tensor:
        found = [
            routing.dynamic_routing(make()),
            routing.em_routing(make(), score, beta_cost=beta, beta_active=beta),
            routing.heinsen_routing(make(), score, beta_use=use, beta_ignore=use),
        ]
        return torch.stack([each.pose.sin().sum() for each in found]).sum()

    if task == "inference":
        return forward
    leaves = [leaf.requires_grad_() for leaf in leaves]
    return lambda: torch.autograd.grad(forward(), leaves)


def measure_shared() -> list[dict]:
    """The times of all ways to make votes by shared weights, with kernels and without."""
    torch.set_num_threads(1)
    found = []
    for native in (True, False):
        with nullcontext() if native else kernels.without_kernels():
            for task, sizes in product(TASKS, SHARED):
                times = {method: _measure_method(sizes, task, method) for method in ("closed", "built")}
                if native:
                    times["few"] = _measure_method(sizes, task, "few")
                name = name_task(native=native, training=task == "training")
                found.append({"task": name, "sizes": list(sizes), "seconds": times})
                print(found[-1], flush=True)
    return found


def _measure_method(sizes: tuple[int, ...], task: str, method: Method) -> float:
    with force_path(Path.PLAIN) if method == "few" else nullcontext():
        return measure(make_shared_work(sizes, task, method), seconds=0.15)


def measure_without_kernels() -> list[dict]:
    """The times of all sizes on the paths that need no kernels, without any."""
    found = []
    with kernels.without_kernels():
        for task in TASKS:
            for examples, children in SIZES:
                work, times = make_work(examples, children, task), {}
                for path in (Path.PLAIN, Path.BLOCKS):
                    with force_path(path):
                        times[path.value] = measure(work)
                votes, weights = examples * children * 160, children * 1280
                found.append({"task": f"{task} without kernels", "votes": votes, "weights": weights, "seconds": times})
                print(found[-1], flush=True)
    return found


def measure_threads(rounds: int = 400) -> dict[str, float]:
    """Seconds to start a second thread of a kernel and wait for it, and of one number of the votes in a pass."""

    def time_pass(examples: int, children: int, threads: int) -> float:
        tape = Tape([torch.randn(examples, 1, children, 1, 8), torch.randn(children, 10, 8, 16)], Workspace())
        tape.sizes.threads = threads
        coupling = torch.rand(examples, 1, children, 10)
        times = []
        for _ in range(rounds):
            start = time.perf_counter()
            tape.sum(coupling, None, squares=False)
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    alone, both = time_pass(16, 288, 1), time_pass(16, 288, 2)
    return {"start": both - alone / 2, "number": alone / (16 * 288 * 160)}


def fit(record: dict) -> dict[str, dict[str, tuple[float, ...]]]:
    """For each task and path, the seconds of a call, of a vote's number and of a weight's number."""
    model: dict[str, dict[str, tuple[float, ...]]] = {}
    for task in dict.fromkeys(size["task"] for size in record["sizes"]):
        sizes = [size for size in record["sizes"] if size["task"] == task]
        model[task] = {}
        for path in sizes[0]["seconds"]:
            seconds = np.array([size["seconds"][path] for size in sizes])
            features = np.array([[1.0, size["votes"], size["weights"]] for size in sizes])
            model[task][path] = _fit_positive(features / seconds[:, None])
    return model


def fit_sums(record: dict) -> dict[str, tuple[float, ...]]:
    """For each way to sum up all votes, the seconds of a call, of a weight's number and of a product, and those that it
    takes to start threads: of kernels as measured by itself, since these calls follow each other closely."""
    model = {}
    for way in sorted({case["way"] for case in record["sums"]}):
        kernel = way.startswith("kernel")
        cases = [case for case in record["sums"] if case["way"] == way and (case["threads"] == 1 or not kernel)]
        weights = np.array([np.prod(case["matrix"]) for case in cases])
        rows = np.array([case["pose"][0] * case["pose"][1] * case["pose"][3] for case in cases])
        threads = np.array([case["threads"] for case in cases])
        features = np.stack([np.ones(len(cases)), weights, rows * weights / threads, threads > 1], axis=1)
        seconds = np.array([case["seconds"] for case in cases])
        found = _fit_positive((features[:, :3] if kernel else features) / seconds[:, None])
        model[way] = (*found, record["threads"]["start"]) if kernel else found
    return model


def fit_shared(record: dict) -> dict[str, dict[str, tuple[float, ...]]]:
    """For each task and way to make votes by shared weights, the seconds of a call, of each number that is made and of
    each product."""
    model: dict[str, dict[str, tuple[float, ...]]] = {}
    for task in dict.fromkeys(case["task"] for case in record["shared"]):
        cases = [case for case in record["shared"] if case["task"] == task]
        model[task] = {}
        for method in cases[0]["seconds"]:
            seconds = np.array([case["seconds"][method] for case in cases])
            features = np.array([(1.0, *count_work(method, *join_examples(case["sizes"]))) for case in cases])
            model[task][method] = _fit_positive(features / seconds[:, None])
    return model


def join_examples(sizes: Sequence[int]) -> tuple[int, int, int, int, int]:
    """Sizes as the model takes them: the children of all examples together."""
    examples, children, parents, rows, columns, out_columns = sizes
    return examples * children, parents, rows, columns, out_columns


def _fit_positive(relative: np.ndarray) -> tuple[float, ...]:
    """Coefficients of zero or more with the least relative errors: those of a subset of the features."""
    features = relative.shape[1]
    best: tuple[float, tuple[float, ...]] = (float("inf"), (0.0,) * features)
    for chosen in chain.from_iterable(combinations(range(features), size) for size in range(features, 0, -1)):
        part, *_ = np.linalg.lstsq(relative[:, chosen], np.ones(len(relative)), rcond=None)
        if (part < 0).any():
            continue
        error = float(np.square(relative[:, chosen] @ part - 1.0).sum())
        whole = [0.0] * features
        for place, value in zip(chosen, part, strict=True):
            whole[place] = float(value)
        best = min(best, (error, tuple(whole)))
    return best[1]


def render(record: dict) -> str:
    """The module that holds the model."""
    model, threads = fit(record), record["threads"]
    lines = ["COSTS: dict[str, dict[str, tuple[float, float, float]]] = {\n"]
    lines.extend(_render_costs(model))
    lines.append(f"}}\n\nNUMBERS_PER_THREAD = {round(threads['start'] / threads['number']):_}\n")
    lines.append('"""So many numbers of the votes take as long, in one pass, as it takes to start a thread."""\n')
    lines.append("\nSUM_COSTS: dict[str, tuple[float, float, float, float]] = {\n")
    for way, costs in fit_sums(record).items():
        lines.append(f'    "{way}": ({", ".join(f"{cost:.3g}" for cost in costs)}),\n')
    lines.append(
        '}\n"""The sum of all votes: a call, each number of the vote weights, each product of one with a pose, which\n'
        'threads share, and starting threads."""\n'
    )
    lines.append("\nSHARED_COSTS: dict[str, dict[str, tuple[float, float, float]]] = {\n")
    lines.extend(_render_costs(fit_shared(record)))
    lines.append(
        '}\n"""Votes by shared weights: a call, each number that is made (features in closed form, else votes), and\n'
        'each product, of a feature for a parent or of a pose for a vote."""\n'
    )
    return HEADER + "".join(lines)


def _render_costs(model: dict[str, dict[str, tuple[float, ...]]]) -> Iterator[str]:
    for task, ways in model.items():
        yield f'    "{task}": {{\n'
        for way, costs in ways.items():
            yield f'        "{way}": ({", ".join(f"{cost:.3g}" for cost in costs)}),\n'
        yield "    },\n"


if __name__ == "__main__":
    if "--sums" in sys.argv[1:]:
        write_json(RECORD, json.loads(RECORD.read_text()) | {"sums": measure_sums()}, indent=1)
    elif "--shared" in sys.argv[1:]:
        write_json(RECORD, json.loads(RECORD.read_text()) | {"shared": measure_shared()}, indent=1)
    elif "--write" not in sys.argv[1:]:
        write_json(RECORD, measure_paths(), indent=1)
    MODULE.write_text(render(json.loads(RECORD.read_text())))
