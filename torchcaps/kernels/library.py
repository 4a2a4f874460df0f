"""The compiled kernels as Python functions, by ctypes: addresses of tensors in, nothing of PyTorch's in C."""

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_int64, c_void_p, sizeof
from functools import lru_cache, reduce
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from torchcaps.kernels.waiting import find_openmp

LIBRARY = Path(__file__).parent / "_kernels.so"
SUFFIXES = {torch.float32: "float", torch.float64: "double"}
LAYOUT = 13  # of packed numbers
GRAIN = 32768  # numbers of a pass from which on it has threads: PyTorch's own value, at::internal::GRAIN_SIZE
_switched_off = False


def _fields(kind: type, *names: str) -> list[tuple[str, type]]:
    return [(name, kind) for name in names]


class Sizes(Structure):
    """``Sizes`` of kernels.c."""

    _fields_ = [
        *_fields(c_int64, "rows", "groups", "types", "parents", "pose_rows", "columns", "out_columns"),
        *_fields(c_int64, "bias_groups", "threads"),
    ]


class KernelJob(Structure):
    """``Job`` of kernels.c."""

    _fields_ = [
        ("sizes", POINTER(Sizes)),
        *_fields(c_void_p, "pose", "weight", "bias", "origin"),
        *_fields(c_int64, "columns", "moments"),
        *_fields(c_void_p, "pairs", "center", "linear", "square", "plus", "first", "second", "out"),
        ("factors", c_int64),
        ("factor_pairs", POINTER(c_void_p)),
        ("factor_columns", POINTER(c_int64)),
        *_fields(c_void_p, "to_pose", "to_weight", "to_bias"),
        *_fields(c_int64, "add", "tile_rows", "tile_parents", "parts"),
        ("shares", c_void_p),
        ("failed", c_int64),
    ]


class CompetitionJob(Structure):
    """``Competition`` of competition.c."""

    _fields_ = [
        *_fields(c_int64, "examples", "positions", "parents", "children", "places", "spots", "watchers"),
        *_fields(c_void_p, "child_of", "seen_by", "there"),
        *_fields(c_int64, "orphan", "in_logs", "threads"),
        *_fields(c_void_p, "logits", "present", "share", "mass", "peak", "sum"),
        *_fields(c_void_p, "to_share", "to_mass", "to_logits", "to_present"),
        *_fields(c_int64, "rows_of_task", "failed"),
    ]


class ClosedJob(Structure):
    """``Closed`` of closed.c."""

    _fields_ = [
        *_fields(c_int64, "examples", "children", "pose_rows", "columns", "parents", "threads"),
        *_fields(c_void_p, "pose", "presence", "theta", "moments", "to_pose", "to_presence", "to_theta"),
        *_fields(c_int64, "back", "parts", "failed"),
        ("shares", c_void_p),
    ]


class WinogradJob(Structure):
    """``Winograd`` of winograd.c."""

    _fields_ = [
        *_fields(c_int64, "examples", "channels", "rows", "columns", "top", "left", "tiles_down", "tiles_across"),
        *_fields(c_int64, "step", "threads"),
        *_fields(c_void_p, "image", "points"),
    ]


class FourierJob(Structure):
    """``Fourier`` of fourier.c."""

    _fields_ = [
        *_fields(c_int64, "images", "channels", "rows", "columns", "first", "many", "top", "left", "down", "across"),
        *_fields(c_int64, "there_down", "there_across", "high", "wide", "kind", "back", "channels_last", "threads"),
        *_fields(c_int64, "failed", "next"),
        *_fields(c_void_p, "image", "points", "for_rows", "for_columns"),
    ]


class ImplicitJob(Structure):
    """``Implicit`` of implicit.c."""

    _fields_ = [
        *_fields(c_int64, "examples", "in_channels", "out_channels", "rows", "columns", "high", "wide", "down"),
        *_fields(c_int64, "across", "top", "left", "threads", "back", "parts", "failed"),
        *_fields(c_void_p, "features", "weight", "bias", "outputs", "to_features", "to_weight", "packed"),
    ]


class NormJob(Structure):
    """``Norm`` of norm.c."""

    _fields_ = [
        *_fields(c_int64, "examples", "channels", "size", "threads"),
        ("eps", c_double),
        *_fields(c_void_p, "from_", "weight", "bias", "mean", "variance", "to", "grad", "to_weight", "to_bias"),
    ]


@lru_cache(maxsize=1)
def _load() -> ctypes.CDLL | None:
    if os.environ.get("TORCHCAPS_KERNELS", "").lower() in ("off", "0", "no") or not LIBRARY.exists():
        return None
    try:
        library = ctypes.CDLL(str(LIBRARY))
        library.layout.restype = c_int64
        if library.layout() != _describe_layout():  # of another version of the package
            return None
        _declare(library)
        library.use_team.argtypes = [c_void_p]
        library.use_team(_find_team())
        if hasattr(os, "register_at_fork"):  # the team's threads are not in a child: it starts its own
            os.register_at_fork(after_in_child=lambda: library.use_team(None))
    except (OSError, AttributeError):  # of another kind of machine, or not ours
        return None
    return library


def _describe_layout() -> int:
    """The sizes of all structures in one number, as ``layout`` of kernels.c has it."""
    structures = (Sizes, KernelJob, CompetitionJob, ClosedJob, WinogradJob, FourierJob, ImplicitJob, NormJob)
    return reduce(lambda all, size: (all * 1009 + size) % 1_000_000_007, (*map(sizeof, structures), LAYOUT), 0)


def _find_team() -> c_void_p:
    """``GOMP_parallel`` of the OpenMP library that PyTorch has loaded, or nothing: with it, kernels run on the threads
    that PyTorch's own operations run on."""
    openmp = find_openmp()
    return c_void_p() if openmp is None else ctypes.cast(openmp.GOMP_parallel, c_void_p)


JOBS = ("sums", "dots", "carry", "compete", "closed", "winograd", "fourier", "implicit", "norm")
FEW_JOBS = (
    "make", "sum_up", "carry_few", "derive", "attend", "squash", "exponential", "lengths", "unit", "rivals",
    "units",
)  # fmt: skip


def _declare(library: ctypes.CDLL) -> None:
    for suffix in SUFFIXES.values():
        for name in (*JOBS, *FEW_JOBS, "pack", "turn_poses"):
            getattr(library, f"{name}_{suffix}").restype = None
        for name in FEW_JOBS:  # structures as bytes
            getattr(library, f"{name}_{suffix}").argtypes = [c_char_p]
        getattr(library, f"turn_poses_{suffix}").argtypes = [c_int64] * 5 + [c_void_p] * 3 + [c_int64] * 2
        getattr(library, f"pack_{suffix}").argtypes = [c_int64] * 4 + [c_void_p] * 2 + [c_int64]
        getattr(library, f"lanes_{suffix}").restype = c_int64


def available() -> bool:
    """Whether the compiled kernels are there and in use.

    Returns:
        Whether votes by a weight for each pair are computed by them, for tensors on a CPU.

    Example:
        >>> available() in (True, False)
        True
    """
    return not _switched_off and _load() is not None


def take_kernels(tensor: Tensor) -> bool:
    """Whether the kernels can work on a tensor here and now: on a CPU, in single or double precision, with nobody
    looking through the operations.

    Args:
        tensor: what the work is about.

    Returns:
        Whether they can.
    """
    # Tracing is asked first: compilers cannot see through what follows.
    return not must_be_traceable() and suits_kernels(tensor)


def suits_kernels(tensor: Tensor) -> bool:
    """Whether the kernels can work on a tensor if nobody looks through the operations."""
    there = not _switched_off and _load() is not None
    plain = type(tensor) is Tensor or type(tensor) is torch.nn.Parameter
    return there and plain and tensor.dtype in SUFFIXES and tensor.is_cpu


@contextmanager
def without_kernels() -> Iterator[None]:
    """PyTorch's own operations instead of the kernels, for as long as the context lasts: to compare the two."""
    global _switched_off
    before, _switched_off = _switched_off, True
    try:
        yield
    finally:
        _switched_off = before


def must_be_traceable() -> bool:
    """Whether someone looks through the operations: a compiler, an exporter, a tracer, a function transform or
    forward-mode differentiation."""
    return (
        torch.compiler.is_compiling()
        or torch._C._is_tracing()
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
    )


@lru_cache(maxsize=32)
def find_kernel(name: str, dtype: torch.dtype) -> Callable[..., Any]:
    library = _load()
    assert library is not None, "the kernels are not there; ask available() first"
    return getattr(library, f"{name}_{SUFFIXES[dtype]}")


@lru_cache(maxsize=2)
def count_lanes(dtype: torch.dtype) -> int:
    """Numbers in a vector of this processor: so many children are a tile."""
    return find_kernel("lanes", dtype)()


def run_kernel(name: str, dtype: torch.dtype, job: KernelJob) -> None:
    """Run one of ``sums``, ``dots`` and ``carry``."""
    find_kernel(name, dtype)(byref(job))
    if job.failed:
        raise MemoryError(f"no memory for the tiles of {job.sizes.contents.types} types of children")


def run_on(name: str, job: CompetitionJob | ClosedJob, dtype: torch.dtype, **tensors: Tensor | None) -> None:
    """Run ``compete`` or ``closed`` on contiguous tensors."""
    for field, tensor in tensors.items():
        if tensor is not None:
            setattr(job, field, tensor.data_ptr())
    find_kernel(name, dtype)(byref(job))
    if job.failed:
        raise MemoryError(f"no memory for the kernel {name!r} of {job.children} children")


def pack(tensor: Tensor, groups: int, types: int, threads: int, rows: int = 1) -> Tensor:
    """Contiguous numbers of ``(rows, groups, types, ...)`` as the kernels read them: types innermost, in tiles of a
    vector each, ``(groups, tiles, rows, ..., lanes)``."""
    lanes = count_lanes(tensor.dtype)
    each = tensor.numel() // (rows * groups * types)
    size = rows * groups * -(-types // lanes) * lanes * each
    # Vectors lie at multiples of their length.
    room = tensor.new_empty(size + lanes)
    start = -room.data_ptr() % 64 // tensor.element_size()
    packed = room[start : start + size]
    find_kernel("pack", tensor.dtype)(rows, groups, types, each, tensor.data_ptr(), packed.data_ptr(), threads)
    return packed


def turn_poses(pose: Tensor, scale: Tensor, types: int) -> Tensor:
    """Contiguous poses ``(n, q, i, c, d)`` times weights of children ``(n, q, i, 1)``, added up over the groups that
    share vote weights: ``(n q c, t d)``."""
    n, q, i, c, d = pose.shape
    turned = pose.new_empty((n * q * c, types * d))
    find_kernel("turn_poses", pose.dtype)(
        n * q, i // types, types, c, d, scale.data_ptr(), pose.data_ptr(), turned.data_ptr(), 0, _share_out(pose),
    )  # fmt: skip
    return turned


def turn_back(turned: Tensor, scale: Tensor | None, shape: Sequence[int], types: int) -> Tensor:
    """The gradient ``shape`` of poses of that of ``turn_poses``; without weights, that of weighted poses."""
    n, q, i, c, d = shape
    pose = turned.new_empty(shape)
    find_kernel("turn_poses", pose.dtype)(
        n * q, i // types, types, c, d, None if scale is None else scale.data_ptr(), pose.data_ptr(),
        turned.data_ptr(), 1, _share_out(pose),
    )  # fmt: skip
    return pose


def _share_out(tensor: Tensor) -> int:
    """The threads for one pass over a tensor: as PyTorch has it, one if there is little to do."""
    return torch.get_num_threads() if tensor.numel() > GRAIN else 1
