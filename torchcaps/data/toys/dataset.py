"""The rendered toys as datasets, kept on disk once they have been made.

``toys_novel`` has viewpoints that training never saw: the split of Hinton, Sabour and Frosst 2018 on smallNORB, with
azimuths of 300, 320, 340, 0, 20 and 40 degrees for training. Both ``test`` (new viewpoints) and ``familiar`` (known
ones) show instances that training never saw. ``toys_azimuth`` and ``toys_elevation`` have each image of a pair as an
example, as Hahn, Pyeon and Kim 2019 take them.

``toys_val`` is for choosing settings: both of its splits are of the training instances, so that the test instances
stay unseen. Four instances of each category are for training; ``test`` shows the fifth, and so predicts what a
network does with new instances, as random training pictures cannot.
"""

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from torchcaps.data.base import ArrayDataset, DataError, Dataset, SomeExamples
from torchcaps.data.catalog import DatasetEntry, Rendering, record_sums
from torchcaps.data.files import cache_dir, locked, writable
from torchcaps.data.npy import map_npy
from torchcaps.data.toys.catalog import CATEGORIES, INSTANCES, build_toy
from torchcaps.data.toys.scene import AZIMUTHS, ELEVATIONS, LIGHTINGS, photograph
from torchcaps.data.viewpoints import IMAGES, PAIRS, choose_views, single_views, split_of_pairs
from torchcaps.files import UNFINISHED, replace_file

FOLDER = "toys"
VERSION = 1
"""Goes up when the pictures change, so that nobody is served old ones from the cache."""


@dataclass(frozen=True)
class Grid:
    """Which pictures of each category there are: every combination of these. The default is all of smallNORB's."""

    instances: tuple[int, ...]
    elevations: tuple[int, ...] = tuple(range(ELEVATIONS))
    azimuths: tuple[int, ...] = tuple(range(AZIMUTHS))
    lightings: tuple[int, ...] = tuple(range(LIGHTINGS))
    size: int = 96

    def __post_init__(self) -> None:
        for name, chosen, count in (
            ("instances", self.instances, 10),
            ("elevations", self.elevations, ELEVATIONS),
            ("azimuths", self.azimuths, AZIMUTHS),
            ("lightings", self.lightings, LIGHTINGS),
        ):
            if not chosen or not set(chosen) <= set(range(count)):
                raise ValueError(f"{name} are some of 0 to {count - 1}; got {chosen}")
        if self.size < 8:
            raise ValueError(f"pictures are at least 8 pixels wide; got size={self.size}")

    @property
    def shape(self) -> tuple[int, int, int, int, int]:
        """Counts in the order of the examples: instance, elevation, azimuth, lighting, category."""
        counts = (len(self.instances), len(self.elevations), len(self.azimuths), len(self.lightings))
        return (*counts, len(CATEGORIES))

    def coordinates(self) -> dict[str, Tensor]:
        """The category and the metadata of every example, in order, numbered as smallNORB does."""
        axes = (self.instances, self.elevations, [2 * k for k in self.azimuths], self.lightings, range(len(CATEGORIES)))
        meshed = torch.meshgrid([torch.tensor(tuple(axis), dtype=torch.int64) for axis in axes], indexing="ij")
        names = ("instance", "elevation", "azimuth", "lighting", "category")
        return {name: values.flatten() for name, values in zip(names, meshed, strict=True)}


def default_grid(split: str) -> Grid:
    """The 24,300 stereo pairs of a split."""
    if split not in INSTANCES:
        raise ValueError(f"toys have the splits {' and '.join(INSTANCES)}; got {split!r}")
    return Grid(INSTANCES[split])


def cache_file(root: Path, split: str, grid: Grid, seed: int) -> Path:
    """Where the pictures of this grid and seed are kept."""
    digest = sha256(repr((VERSION, seed, astuple(grid))).encode()).hexdigest()[:16]
    return root / FOLDER / f"{split}-{digest}.npy"


def find_toys(split: str, root: Path, grid: Grid | None = None, seed: int = 0) -> Path | None:
    """The file of these pictures if they were rendered: in the data directory, else in the user's cache directory."""
    grid = default_grid(split) if grid is None else grid
    places = (cache_file(place, split, grid, seed) for place in (root, cache_dir()))
    return next((file for file in places if file.is_file()), None)


def load_toys(
    split: str,
    root: str | Path,
    *,
    seed: int = 0,
    grid: Grid | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ArrayDataset:
    """Stereo pairs of toys (channel 0 the left eye), rendered on first use and mapped from disk afterwards.

    The category changes from one example to the next, so every stretch is balanced. ``progress`` is told the number
    of pairs done and in all. ``workers`` threads render; as many as torch uses, unless told. Where the data directory
    ``root`` is read-only, the user's cache directory keeps the pictures.
    """
    root, whole = Path(root), default_grid(split)
    grid = whole if grid is None else grid
    file = find_toys(split, root, grid, seed)
    if file is None:
        place = root if writable(root / FOLDER) and writable(root) else cache_dir()
        file = cache_file(place, split, grid, seed)
        with locked(place, FOLDER) as directory:
            if not file.is_file():  # else another process made it while this one waited
                for left in directory.glob(f".{file.stem}*{UNFINISHED}"):  # by a process that was killed
                    left.unlink()
                _render_to(file, grid, seed, workers or torch.get_num_threads(), progress)
                record_sums(directory, [file])
    coordinates = grid.coordinates()
    label = coordinates.pop("category")
    return ArrayDataset("toys (rendered)", split, CATEGORIES, _map(file, grid), label, coordinates)


def _array_shape(grid: Grid) -> tuple[int, int, int, int]:
    return (int(np.prod(grid.shape)), 2, grid.size, grid.size)


def _map(file: Path, grid: Grid) -> UInt8[Tensor, "n 2 row column"]:
    remedy = "delete it, and the toys are rendered again"
    array = map_npy(file, remedy)
    if array.dtype != np.uint8 or array.shape != _array_shape(grid):
        raise DataError(
            f"{file}: holds {array.dtype} of shape {array.shape}, not uint8 of {_array_shape(grid)}; {remedy}"
        )
    return torch.from_numpy(array)


def _render_to(file: Path, grid: Grid, seed: int, workers: int, progress: Callable[[int, int], None] | None) -> None:
    """Render everything into a temporary file beside, which takes the name only when it is complete."""
    shape = _array_shape(grid)
    needed, free = int(np.prod(shape)), shutil.disk_usage(file.parent).free
    if free < needed + (1 << 20):
        raise DataError(f"rendering toys to {file} needs {needed / 1e6:.0f} MB; the disk has {free / 1e6:.0f} MB free")
    with replace_file(file) as target:
        np.lib.format.write_array_header_1_0(target, {"descr": "|u1", "fortran_order": False, "shape": shape})
        start = target.tell()
        target.truncate(start + needed)
        target.flush()
        array = np.memmap(target, np.uint8, "r+", start, shape)
        render(grid, seed, torch.from_numpy(array), workers=workers, progress=progress)
        array.flush()
        del array


def render(
    grid: Grid,
    seed: int,
    out: UInt8[Tensor, "n 2 row column"],
    *,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Photograph every toy of the grid into ``out``, in the order of ``grid.coordinates()``."""
    places = out.unflatten(0, grid.shape)
    jobs = [(i, c) for i in range(len(grid.instances)) for c in range(len(CATEGORIES))]
    threads = torch.get_num_threads()

    def one(job: tuple[int, int]) -> None:
        i, c = job
        pictures = photograph(
            build_toy(CATEGORIES[c], grid.instances[i], seed),
            elevations=grid.elevations,
            azimuths=grid.azimuths,
            lightings=grid.lightings,
            size=grid.size,
        )
        places[i, :, :, :, c] = pictures

    # One toy to a thread scales; splitting torch's small operations among threads costs more than it brings.
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        try:
            for done, _ in enumerate(pool.map(one, jobs), start=1):
                if progress is not None:
                    progress(done * len(out) // len(jobs), len(out))
        except BaseException:
            # Whoever interrupts should wait for the toys in hand only, not for the whole programme.
            pool.shutdown(wait=True, cancel_futures=True)
            raise
        finally:
            torch.set_num_threads(threads)


TOYS = DatasetEntry(
    "stand-in for smallNORB: toys in 5 categories, stereo, 96×96 gray",
    load_toys,
    {"train": 24_300, "test": 24_300},
    "MIT, as this library, which renders them",
    rendering=Rendering(find_toys, lambda split, root, told: load_toys(split, root, progress=told), 24_300 * 2 * 96**2),
)


def load_novel(split: str, root: str | Path) -> SomeExamples:
    """``train``, ``test`` or ``familiar``, from the same pictures as ``toys``."""
    return choose_views(load_toys(split_of_pairs(split), root), "azimuth", split, "toys_novel (rendered)")


TOYS_NOVEL = DatasetEntry(
    "toys, trained on a third of the azimuths, tested on the others",
    load_novel,
    PAIRS,
    TOYS.terms,
    needs="toys",
)
TOYS_AZIMUTH = DatasetEntry(
    "single images of toys, trained on a third of the azimuths, tested on the others",
    single_views(load_toys, "azimuth", "toys_azimuth (rendered)"),
    IMAGES,
    TOYS.terms,
    needs="toys",
)
TOYS_ELEVATION = DatasetEntry(
    "single images of toys, trained on the three lowest of nine elevations, tested on the others",
    single_views(load_toys, "elevation", "toys_elevation (rendered)"),
    IMAGES,
    TOYS.terms,
    needs="toys",
)


KEPT_FOR_VALIDATION = 4
"""The instance of each category, of those for training, that ``toys_val`` keeps for choosing settings."""


def keep_instance(toys: Dataset, instance: Int[Tensor, "n"], split: str) -> SomeExamples:
    """Those of the training toys that show the instance kept for validation, or all others."""
    kept = instance == KEPT_FOR_VALIDATION
    chosen = (kept if split == "test" else ~kept).nonzero()[:, 0]
    return SomeExamples(toys, chosen, split, "toys_val (rendered)")


def load_val(split: str, root: str | Path) -> SomeExamples:
    """``train`` or ``test``, both from the training pictures of ``toys``."""
    toys = load_toys("train", root)
    return keep_instance(toys, toys.metadata["instance"], split)


TOYS_VAL = DatasetEntry(
    "toys for choosing settings: training instances alone, tested on one that is kept apart",
    load_val,
    {"train": 19_440, "test": 4_860},
    TOYS.terms,
    needs="toys",
)
