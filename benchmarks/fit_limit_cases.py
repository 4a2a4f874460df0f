"""The limits that bound what the cost models choose, and layers and convolutions to measure them on."""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from unittest.mock import patch

import torch

from benchmarks.fit_convolutions import TASKS
from benchmarks.fit_convolutions import make_work as make_convolution
from torchcaps import kernels, routing
from torchcaps.convolution.sizes import Way
from torchcaps.votes import Votes, dense_votes, shared_votes
from torchcaps.votes.methods import find_cheapest_method
from torchcaps.votes.paths import Path, find_cheapest, force_path
from torchcaps.votes.summed import kernel_pays, sum_votes

MEGA = 1_000_000
BATCHES = (8, 16, 32, 64, 96)
CACHED = (find_cheapest, find_cheapest_method, kernel_pays)

Work = Callable[[], object]


@dataclass(frozen=True)
class LimitCase:
    """Something that a limit is about."""

    title: str
    make: Callable[[], Work]
    size: int | None = None  # what is compared with the limit


@dataclass(frozen=True)
class Limit:
    """A constant of the package that is tried at several values."""

    name: str
    module: str
    what: str
    values: tuple[int, ...]
    cases: tuple[LimitCase, ...]
    also: str | None = None  # another module that reads it
    native: bool = True
    path: Path | None = None
    memory: LimitCase | None = None  # what holds most under the limit; with a size if it grows up to the limit
    budget: float = math.inf  # bytes that this may be at the limit

    @property
    def value(self) -> int:
        """What the package has now."""
        found = getattr(import_module(f"torchcaps.{self.module}"), self.name)
        return found["cpu"] if isinstance(found, dict) else found

    @contextmanager
    def set(self, value: int) -> Iterator[None]:
        """The package with another value."""
        with ExitStack() as stack:
            for name in filter(None, (self.module, self.also)):
                module = import_module(f"torchcaps.{name}")
                found = getattr(module, self.name)
                change = patch.dict(found, cpu=value) if isinstance(found, dict) else None
                stack.enter_context(change or patch.object(module, self.name, value))
            if not self.native:
                stack.enter_context(kernels.without_kernels())
            if self.path is not None:
                stack.enter_context(force_path(self.path))
            forget_choices()
            yield
        forget_choices()


def forget_choices() -> None:
    """What was chosen under another limit."""
    for choose in CACHED:
        choose.cache_clear()


def route_em(votes: Votes) -> torch.Tensor:
    score, beta = torch.zeros(votes.shape[:-2]), torch.zeros(votes.parents)
    return routing.em_routing(votes, score, beta_cost=beta, beta_active=beta).pose


ROUTES: dict[str, Callable[[Votes], torch.Tensor]] = {
    "dynamic": lambda votes: routing.dynamic_routing(votes).pose,
    "EM": route_em,
}


def make_step(make_votes: Callable[[torch.Tensor, torch.Tensor], Votes], shapes: tuple, name: str) -> Work:
    """A routing, forward and backward."""
    torch.manual_seed(0)
    pose, weight = leaves = [(torch.randn(shape) * 0.3).requires_grad_() for shape in shapes]
    route = ROUTES[name]
    return lambda: torch.autograd.grad(route(make_votes(pose, weight)).sin().sum(), leaves)


def dense(
    examples: int, children: int, parents: int, *, types: int | None = None, pose: int = 8, out: int = 16,
    name: str = "dynamic", count: str | None = None,
) -> LimitCase:  # fmt: skip
    """A layer with a weight for each pair, or for each type of child."""
    shapes = (examples, children, pose), (types or children, parents, pose, out)
    pairs = examples * children * parents
    sizes = {"numbers": pairs * out, "pairs": pairs, "examples": examples, "components": out}
    kinds = "" if types is None else f" of {types} types" if types > 1 else " of one type"
    title = f"{name}, {examples} × {children} children{kinds}, {parents} parents of {out}"
    return LimitCase(title, lambda: make_step(dense_votes, shapes, name), sizes[count] if count else None)


def shared(
    examples: int, children: int, parents: int, sizes: tuple[int, int, int], *, name: str = "dynamic",
    method: str = "auto", count: str | None = None,
) -> LimitCase:  # fmt: skip
    """A layer by weights that all children share."""
    rows, columns, out = sizes
    shapes = (examples, children, rows * columns), (parents, columns, out)
    pairs = examples * children * parents
    counts = {"numbers": pairs * rows * out, "pairs": pairs}

    def votes(pose: torch.Tensor, weight: torch.Tensor) -> Votes:
        return shared_votes(pose, weight, rows=rows, method=method)  # pyright: ignore[reportArgumentType]

    title = f"{name}, shared weights, {examples} × {children} children, {parents} parents of {rows}×{out}"
    return LimitCase(title, lambda: make_step(votes, shapes, name), counts[count] if count else None)


def convolution(*size: int, way: Way) -> LimitCase:
    """A convolution in training."""
    title = "{} × {} to {} channels, {} pixels, window of {}, stride {}".format(*size)
    return LimitCase(title, lambda: make_convolution(size, way, TASKS["training"]))


def summing(examples: int, children: int, parents: int) -> LimitCase:
    """One sum of all votes, forward and backward."""

    def make() -> Work:
        torch.manual_seed(0)
        leaves = [torch.randn(examples, 1, children, 1, 8), torch.randn(children, parents, 8, 16)]
        leaves = [leaf.requires_grad_() for leaf in leaves]
        even, grad = torch.rand(examples, 1, children, 1), torch.randn(examples, 1, parents, 16)
        return lambda: torch.autograd.grad(sum_votes(leaves[0], leaves[1], even), leaves, grad)

    return LimitCase(f"{examples} × {children} children, {parents} parents", make, examples * children * 8)


def powers(first: int, last: int, step: int = 1) -> tuple[int, ...]:
    return tuple(1 << power for power in range(first, last + 1, step))


LIMITS = (
    Limit(
        "MOST_PLAIN_NUMBERS", "votes.paths", "numbers of the votes on the plain path on a CPU, which keeps them all",
        powers(19, 23),
        (
            *(dense(n, 512, 10, types=1, name=name, count="numbers") for n, name in product(BATCHES, ROUTES)),
            *(dense(n, 512, 10, types=8, count="numbers") for n in BATCHES),
            *(shared(n, 512, 10, (1, 8, 16), count="numbers") for n in BATCHES),
        ),
        also="votes.methods", memory=dense(25, 512, 10, types=1, name="EM", count="numbers"), budget=128 * MEGA,
    ),
    Limit(
        "MOST_KERNEL_POSES", "votes.summed", "numbers of the poses whose votes one kernel sums up",
        powers(16, 21),
        tuple(
            summing(numbers // (8 * children), children, 10)
            for children, numbers in product((288, 1152, 4608), powers(16, 20)) if numbers >= 16 * children
        ),
    ),
    Limit(
        "FEWEST_TILES", "convolution.winograd", "tiles that go through Winograd's transforms together, at least",
        powers(4, 9),
        tuple(
            convolution(*size, way="winograd")
            for size in ((16, 32, 32, 66, 3, 1), (64, 32, 32, 18, 3, 1), (64, 64, 64, 16, 3, 1), (32, 64, 64, 34, 3, 1))
        ),
    ),
    Limit(
        "MOST_AT_ONCE", "convolution.fourier", "bytes of points that Fourier transforms make at a time",
        powers(21, 26),
        tuple(
            convolution(*size, way="fourier")
            for size in (
                (32, 256, 256, 20, 9, 2), (128, 128, 128, 20, 9, 2), (32, 128, 128, 20, 9, 2), (64, 64, 64, 20, 9, 2),
                (64, 128, 128, 16, 5, 1), (8, 64, 64, 40, 9, 1),
            )
        ),
    ),
    Limit(
        "BLOCK_NUMBERS", "votes.limits", "numbers of a block's votes on a CPU",
        powers(18, 24),
        (dense(32, 1152, 10), dense(32, 1152, 10, name="EM"), shared(20, 400, 64, (4, 4, 4), method="built")),
        native=False, path=Path.BLOCKS,
    ),
    Limit(
        "FEW_TERMS", "votes.pairs", "terms of a gradient that are added one by one, on the path in blocks",
        powers(2, 9),
        tuple(
            dense(n, children, 10, count="examples")
            for children, n in product((32, 288), (4, 8, 16, 32, 64, 128, 256)) if n * children <= 1 << 13
        ),
        native=False, path=Path.BLOCKS,
    ),
    Limit(
        "FEW_COMPONENTS", "votes.tape", "components of a pose whose outer products are made one by one, in blocks",
        powers(0, 4),
        tuple(
            dense(32, 288, 10, out=out, name=name, count="components") for out, name in product(powers(0, 4), ROUTES)
        ),
        native=False, path=Path.BLOCKS,
    ),
    Limit(
        "MOST_NATIVE_PAIRS_KEPT", "votes.limits",
        "pairs of which the native path keeps everything for the backward pass",
        (1 << 18, 3 << 17, 1 << 19, 3 << 18, 1 << 20, 3 << 19, 1 << 21, 3 << 20),
        tuple(dense(n, 1152, 10, name=name, count="pairs") for n, name in product((16, 48, 96, 192), ROUTES)),
        path=Path.NATIVE, memory=dense(128, 1152, 10, name="EM", count="pairs"), budget=150 * MEGA,
    ),
    Limit(
        "NATIVE_BLOCK_PAIRS", "votes.limits", "pairs in a block of the native path",
        powers(16, 21), (dense(192, 1152, 10), dense(192, 1152, 10, name="EM")),
        path=Path.NATIVE, memory=dense(192, 1152, 10, name="EM"), budget=128 * MEGA,
    ),
    Limit(
        "NATIVE_BLOCK_ROWS", "votes.limits", "rows in such a block at least, since each block reads all weights",
        (1, 16, 32, 64), (dense(64, 2048, 12), dense(64, 2048, 32)), path=Path.NATIVE,
    ),
    Limit(
        "MOST_NATIVE_BLOCK_PAIRS", "votes.limits", "pairs that these rows may have",
        powers(19, 22), (dense(32, 8192, 16),),
        path=Path.NATIVE, memory=dense(32, 8192, 16, name="EM"), budget=512 * MEGA,
    ),
    Limit(
        "MOST_PAIRS_KEPT", "votes.limits", "pairs of which closed forms keep everything for the backward pass",
        powers(19, 25),
        tuple(shared(n, 2048, 32, (4, 4, 4), name="EM", method="closed", count="pairs") for n in (8, 16, 32)),
        memory=shared(64, 2048, 32, (4, 4, 4), name="EM", method="closed", count="pairs"), budget=1500 * MEGA,
    ),
)  # fmt: skip
