"""A stand-in for smallNORB, made on the spot: fifty toys of five categories, photographed in stereo.

smallNORB may not be passed on. These toys are built from simple solids and rendered under the same programme: five
instances of each category for training and five for test, 9 elevations, 18 azimuths, 6 lightings, 96×96 gray stereo
pairs, 24,300 of them in each split. They are not smallNORB: a number measured on them says "toys".
"""

from torchcaps.data.toys.catalog import CATEGORIES, INSTANCES, build_toy
from torchcaps.data.toys.dataset import TOYS, Grid, cache_file, default_grid, find_toys, load_toys, render
from torchcaps.data.toys.norb import write_norb
from torchcaps.data.toys.scene import photograph

__all__ = [
    "CATEGORIES",
    "INSTANCES",
    "TOYS",
    "Grid",
    "build_toy",
    "cache_file",
    "default_grid",
    "find_toys",
    "load_toys",
    "photograph",
    "render",
    "write_norb",
]
