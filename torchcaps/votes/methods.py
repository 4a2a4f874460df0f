"""How votes by shared weights are made: the way that costs least at its size, by measured costs.

``closed``: never, all sums over children are closed forms in features of their poses. ``built``: by a matrix product,
whole or block by block. ``few``: by the kernels for few votes, as if the weights were those of a dense layer.
"""

from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from torchcaps.kernels.library import suits_kernels
from torchcaps.votes.blocks import has_double
from torchcaps.votes.costs import SHARED_COSTS
from torchcaps.votes.paths import LANES, MOST_PLAIN_NUMBERS, PLAIN_NUMBERS_ELSEWHERE, is_forced, name_task

Method = Literal["closed", "built", "few"]


def count_features(rows: int, columns: int) -> int:
    """Features of a pose whose sums over children are all that a Gaussian needs: its numbers and their products."""
    return rows * (columns + columns * (columns + 1) // 2)


def choose_method(pose: Tensor, weight: Tensor, examples: int, children: int, rows: int, *, traceable: bool) -> Method:
    """The cheapest way to make votes of these poses by these weights ``(j, d, h)``."""
    parents, columns, out_columns = weight.shape
    sizes = parents, rows, columns, out_columns
    # A compiler's sizes may stand for others, and a path that is forced leaves no choice by size.
    if traceable or is_forced():
        return _choose_for_many(*sizes, has_double(pose.device))
    if not pose.is_cpu:
        numbers = examples * children * parents * rows * out_columns
        few = numbers <= PLAIN_NUMBERS_ELSEWHERE
        return "built" if few else _choose_for_many(*sizes, has_double(pose.device))
    training = torch.is_grad_enabled() and (pose.requires_grad or weight.requires_grad)
    return find_cheapest_method(examples * children, *sizes, native=suits_kernels(pose), training=training)


@lru_cache(maxsize=256)  # small layers feel the comparison
def find_cheapest_method(
    children: int, parents: int, rows: int, columns: int, out_columns: int, *, native: bool, training: bool
) -> Method:
    """The cheapest way for so many children of all examples together."""
    numbers = children * parents * rows * out_columns
    task = name_task(native=native, training=training)
    methods: list[Method] = ["closed", "built"]
    if native and numbers <= MOST_PLAIN_NUMBERS:
        methods.append("few")
    sizes = children, parents, rows, columns, out_columns
    return min(methods, key=lambda method: estimate_method(task, method, *sizes))


def _choose_for_many(parents: int, rows: int, columns: int, out_columns: int, has_double: bool) -> Method:
    """The cheapest way for any number of children, by what each of many costs."""
    many = 1 << 40  # what a call costs does not count
    sizes = many, parents, rows, columns, out_columns
    task = name_task(native=False, training=True)
    closed = estimate_method(task, "closed", *sizes) < estimate_method(task, "built", *sizes)
    return "closed" if closed and has_double else "built"


def estimate_method(
    task: str, method: Method, children: int, parents: int, rows: int, columns: int, out_columns: int
) -> float:
    """Seconds by the model: of a call; of each number that is made (features in closed form, else votes); and of each
    product, of a feature for a parent or of a pose for a vote."""
    call, number, product = SHARED_COSTS[task][method]
    numbers, products = count_work(method, children, parents, rows, columns, out_columns)
    return call + number * numbers + product * products


def count_work(
    method: Method, children: int, parents: int, rows: int, columns: int, out_columns: int
) -> tuple[int, int]:
    """Numbers that are made, and products."""
    if method == "closed":
        numbers = children * count_features(rows, columns)
        return numbers, numbers * parents
    numbers = children * parents * rows * out_columns
    # The kernels make a row of a vote in vectors, full or not.
    made = numbers if method == "built" else children * parents * rows * -(-out_columns // LANES) * LANES
    return numbers, made * columns
