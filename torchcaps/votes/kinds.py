"""The ways to make votes, each a function from tensors to an operator."""

from collections.abc import Sequence
from math import prod
from typing import Literal, NoReturn

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from torchcaps.capsules import Pair
from torchcaps.kernels.library import must_be_traceable
from torchcaps.votes.base import Votes, held
from torchcaps.votes.competition import CompetitionRule, GridCompetition, ParentCompetition
from torchcaps.votes.grid import ChildGrid, Window, find_tables
from torchcaps.votes.methods import choose_method, count_features
from torchcaps.votes.pairs import PairSource
from torchcaps.votes.shared import QuadraticSource, SharedBuiltSource
from torchcaps.votes.sources import TensorSource

Competition = Literal["image", "field"]
"""Which parents compete for a child of a convolution: all that see it (``"image"``), or those of each receptive field
alone (``"field"``)."""


def tensor_votes(votes: Float[Tensor, "*b i j p"] | Votes, pose: Float[Tensor, "*b i x"] | None = None) -> Votes:
    """Votes that are built already; an operator passes through.

    Args:
        votes: the votes of children i for parents j.
        pose: poses of the children, for routings that read them (``Routing.reads_poses``).

    Shape:
        - votes: ``(*b, i, j, p)``; pose: ``(*b, i, x)`` of any size ``x``.

    Returns:
        The votes as an operator.

    Example:
        >>> tensor_votes(torch.randn(2, 7, 3, 5)).shape
        torch.Size([2, 7, 3, 5])
    """
    if isinstance(votes, Votes):
        if pose is not None:
            raise ValueError(f"poses of shape {tuple(pose.shape)} go with a tensor of votes; got {votes!r}")
        return votes
    if votes.ndim < 3:
        raise ValueError(f"votes need the axes (*b, i, j, p); got shape {tuple(votes.shape)}")
    *batch, children, parents, size = votes.shape
    if children < 1 or parents < 1 or size < 1:
        _refuse_sizes(children, parents, votes=votes)
    if pose is not None and (pose.ndim != votes.ndim - 1 or pose.shape[:-1] != votes.shape[:-2]):
        raise ValueError(f"pose of shape {tuple(pose.shape)}; expected {(*batch, children)} and the size of a pose")
    return Votes(
        TensorSource(ParentCompetition()),
        [_routable(votes).reshape(prod(batch), 1, children, parents, size)],
        batched=[True],
        batch_shape=batch,
        examples=prod(batch),
        positions=1,
        children=children,
        parents=parents,
        pose=size,
        numbers=held(children * parents, size),
        poses=None if pose is None else _match(pose, votes).reshape(prod(batch), 1, children, pose.shape[-1]),
    )


def dense_votes(
    pose: Float[Tensor, "*b i cd"],
    weight: Float[Tensor, "t j d h"],
    bias: Float[Tensor, "t j c h"] | None = None,
    *,
    rows: int = 1,
    coordinates: Float[Tensor, "i c h"] | None = None,
) -> Votes:
    """Votes by a weight for each pair, ``V_ijch = sum_d W_ijdh pose_icd + B_ijch``.

    Args:
        pose: poses of the children.
        weight: vote weights. Where there are more children than weights, they are groups of ``t`` types (the capsules
            of a grid, position by position) that share the weights.
        bias: added to the votes of each pair.
        rows: rows of a matrix pose; 1 for vectors.
        coordinates: added to the votes of each child, whatever the parent.

    Shape:
        - pose: ``(*b, i, c * d)``; weight: ``(t, j, d, h)``; bias: ``(t, j, c, h)``; coordinates: ``(i, c, h)``.
        - result: ``(*b, i, j, c * h)``.

    Returns:
        The votes as an operator.

    Example:
        >>> dense_votes(torch.randn(2, 6, 16), torch.randn(6, 3, 4, 4), rows=4).shape
        torch.Size([2, 6, 3, 16])
    """
    types, parents, columns, out_columns = _weight_shape(weight, 4, "(t, j, d, h)")
    batch, children = _check_poses(pose, rows, columns)
    if children < 1 or parents < 1 or rows * out_columns < 1:
        _refuse_sizes(children, parents, poses=pose, weight=weight)
    if types < 1 or children % types:
        raise ValueError(f"{children} children are no whole number of groups of the weight's {types} types")
    examples = prod(batch)
    pose = _routable(pose).reshape(examples, 1, children, rows, columns)
    tensors = [pose, _match(weight, pose)]
    if bias is not None:
        _check_shape(bias, (types, parents, rows, out_columns), "bias")
        bias = rearrange(bias, "t j c h -> j c h t")
    if coordinates is not None:
        _check_shape(coordinates, (children, rows, out_columns), "coordinates")
        placed = rearrange(coordinates, "i c h -> 1 c h i")
        bias = placed if bias is None else placed + bias.repeat(1, 1, 1, children // types)
    if bias is not None:
        tensors.append(_match(bias, pose))
    return Votes(
        _DENSE,
        tensors,
        batched=[True] + [False] * (len(tensors) - 1),
        batch_shape=batch,
        examples=examples,
        positions=1,
        children=children,
        parents=parents,
        pose=rows * out_columns,
        numbers=held(children * parents, rows * out_columns),
        poses=pose,
    )


_DENSE = PairSource(ParentCompetition())


def shared_votes(
    pose: Float[Tensor, "*b i cd"],
    weight: Float[Tensor, "j d h"],
    bias: Float[Tensor, "j c h"] | None = None,
    *,
    rows: int = 1,
    method: Literal["auto", "closed", "built"] = "auto",
) -> Votes:
    """Votes by weights that all children share, ``V_ijch = sum_d W_jdh pose_icd + B_jch``, for any number of children.

    Args:
        pose: poses of the children.
        weight: vote weights.
        bias: added to the votes for each parent.
        rows: rows of a matrix pose; 1 for vectors.
        method: ``"closed"``, without building the votes, or ``"built"``, whole or block by block; ``"auto"`` takes the
            cheapest, which for few votes is that of dense layers.

    Shape:
        - pose: ``(*b, i, c * d)``; weight: ``(j, d, h)``; bias: ``(j, c, h)``.
        - result: ``(*b, i, j, c * h)``.

    Returns:
        The votes as an operator.

    Example:
        >>> shared_votes(torch.randn(2, 500, 16), torch.randn(3, 4, 4), rows=4).shape
        torch.Size([2, 500, 3, 16])
    """
    parents, columns, out_columns = _weight_shape(weight, 3, "(j, d, h)")
    batch, children = _check_poses(pose, rows, columns)
    if children < 1 or parents < 1 or rows * out_columns < 1:
        _refuse_sizes(children, parents, poses=pose, weight=weight)
    examples = prod(batch)
    pose = _routable(pose).reshape(examples, 1, children, rows, columns)
    tensors = [pose, _match(weight, pose)]
    if bias is not None:
        _check_shape(bias, (parents, rows, out_columns), "bias")
        tensors.append(_match(bias, pose))
    if method not in ("auto", "closed", "built"):
        raise ValueError(f"no method {method!r} of making votes; there are 'auto', 'closed' and 'built'")
    way = method
    if method == "auto":
        way = choose_method(pose, weight, examples, children, rows, traceable=must_be_traceable())
    if way == "few":  # as a dense layer whose children are all of one type
        tensors[1:] = [tensors[1].unsqueeze(0), *[each.unsqueeze(-1) for each in tensors[2:]]]
    return Votes(
        _SHARED[way],
        tensors,
        batched=[True] + [False] * (len(tensors) - 1),
        batch_shape=batch,
        examples=examples,
        positions=1,
        children=children,
        parents=parents,
        pose=rows * out_columns,
        numbers=children * (count_features(rows, columns) + parents)
        if way == "closed"
        else held(children * parents, rows * out_columns),
        poses=pose,
    )


_SHARED = {
    "closed": QuadraticSource(ParentCompetition()),
    "built": SharedBuiltSource(ParentCompetition()),
    "few": _DENSE,
}


def convolutional_votes(
    pose: Float[Tensor, "*b row column t cd"],
    weight: Float[Tensor, "k l t j d h"],
    bias: Float[Tensor, "k l t j c h"] | None = None,
    *,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    rows: int = 1,
    competition: Competition = "image",
) -> Votes:
    """Votes of a map of capsules for a map of parents, each of which sees a ``k × l`` field of the children's grid.

    Children in the padding are absent, whatever the routing: they are not there to vote, to be shared out or to be
    counted, as if the parents at the border had smaller fields.

    Args:
        pose: poses of the children.
        weight: vote weights of every place in a field.
        bias: added to the votes of each pair.
        stride: steps from field to field: one number for rows and columns, or a pair.
        padding: positions added on each side of the grid.
        dilation: steps from child to child within a field.
        rows: rows of a matrix pose; 1 for vectors.
        competition: which parents share out a child: all that see it (``"image"``), or those of each receptive field
            alone (``"field"``).

    Shape:
        - pose: ``(*b, row, column, t, c * d)``; weight: ``(k, l, t, j, d, h)``; bias: ``(k, l, t, j, c, h)``.
        - result: ``(*b, row', column', i, j, c * h)`` with ``i = k * l * t`` children of each field.

    Returns:
        The votes as an operator.

    Example:
        >>> convolutional_votes(torch.randn(2, 5, 5, 4, 8), torch.randn(3, 3, 4, 6, 8, 8), stride=2, padding=1).shape
        torch.Size([2, 3, 3, 36, 6, 8])
    """
    if pose.ndim < 4:
        raise ValueError(f"a map of capsules has the axes (*b, row, column, t, c*d); got shape {tuple(pose.shape)}")
    tall, wide, types, parents, columns, out_columns = _weight_shape(weight, 6, "(k, l, t, j, d, h)")
    *batch, height, width, found_types, _ = pose.shape
    if found_types != types:
        raise ValueError(
            f"the weight is for {types} types of children; the map of shape {tuple(pose.shape)} has {found_types}"
        )
    if competition not in ("image", "field"):
        raise ValueError(f"no competition {competition!r}; there are 'image' and 'field'")
    _check_poses(pose, rows, columns)
    # Under torch.jit.trace sizes are tensors, and the trace takes those of the geometry for constants.
    tall, wide, height, width = (
        int(size) if isinstance(size, Tensor) else size for size in (tall, wide, height, width)
    )
    window = Window.of((tall, wide), stride, padding, dilation)
    window.check((height, width))
    tables = find_tables((height, width), window, pose)
    grid = ChildGrid((*batch, height, width, types), tables)
    laid_out = grid.lay_out(_routable(pose))  # n q i cd
    examples, positions, children, _ = laid_out.shape
    batch_shape = (*batch, *window.count_positions((height, width)))
    rule: CompetitionRule = GridCompetition(tables)
    if competition == "field":
        rule = ParentCompetition(grid.there)
        if grid.there is None:  # positions do not meet and are all alike, so each is an example of its own
            examples, positions = examples * positions, 1
    tensors = [
        laid_out.reshape(examples, positions, children, rows, columns),
        _match(weight.flatten(0, 2), pose),
    ]
    if bias is not None:
        _check_shape(bias, (tall, wide, types, parents, rows, out_columns), "bias")
        tensors.append(_match(rearrange(bias, "y x t j c h -> j c h (y x t)"), pose))
    return Votes(
        PairSource(rule),
        tensors,
        batched=[True] + [False] * (len(tensors) - 1),
        batch_shape=batch_shape,
        examples=examples,
        positions=positions,
        children=children,
        parents=parents,
        pose=rows * out_columns,
        numbers=held(positions * children * parents, rows * out_columns),
        child_grid=grid,
        poses=tensors[0],
    )


def _routable(tensor: Tensor) -> Tensor:
    """Routing works in single precision at least: variances and softmaxes of half-precision numbers go wrong."""
    if tensor.dtype is torch.float32:  # as it nearly always is
        return tensor
    if not tensor.is_floating_point():
        raise ValueError(f"routing needs floating-point numbers; got {tensor.dtype}")
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _match(tensor: Tensor, pose: Tensor) -> Tensor:
    if tensor.dtype is pose.dtype is torch.float32:  # as they nearly always are
        return tensor
    dtype = _routable(pose).dtype
    return tensor if tensor.dtype is dtype else tensor.to(dtype)


def _check_poses(pose: Tensor, rows: int, columns: int) -> tuple[Sequence[int], int]:
    if pose.ndim < 2:
        raise ValueError(f"poses need the axes (*b, i, c*d); got shape {tuple(pose.shape)}")
    *batch, children, size = pose.shape
    if size != rows * columns:
        shape = f"{rows} × {columns} matrices, {rows * columns} numbers" if rows > 1 else f"vectors of {columns}"
        raise ValueError(f"poses of {size} numbers do not fit the weight, which is for {shape}")
    return batch, children


def _refuse_sizes(children: int, parents: int, **given: Tensor) -> NoReturn:
    missing = "child" if children < 1 else "parent" if parents < 1 else "pose component"
    what = " and ".join(f"{name} of shape {tuple(tensor.shape)}" for name, tensor in given.items())
    raise ValueError(f"{what} have no {missing}; routing needs at least one")


def _weight_shape(weight: Tensor, ndim: int, axes: str) -> tuple[int, ...]:
    if weight.ndim != ndim:
        raise ValueError(f"this kind of votes needs a weight with the axes {axes}; got shape {tuple(weight.shape)}")
    return weight.shape


def _check_shape(tensor: Tensor, expected: tuple[int, ...], name: str) -> None:
    if tuple(tensor.shape) != expected:
        raise ValueError(f"{name} of shape {tuple(tensor.shape)}; expected {expected}")
