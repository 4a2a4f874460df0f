"""Convex solids: what the toys are built from.

Every solid is the part of space on the inner side of some planes and, where it is round, of one quadric. That covers
boxes, tapered blades, ellipsoids, cylinders and cones under any affine map, and one ray caster serves them all.
x points forward, y to the left, z up; z = 0 is the ground.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

Point = tuple[float, float, float]

DARK, GLASS = 0.22, 0.3
"""The paint of tyres and of windows."""


@dataclass(frozen=True)
class Solid:
    """A convex solid, and its paint. ``matrix`` and ``center`` map the unit shape, within ±1, to where it stands."""

    planes: Float[Tensor, "plane 4"]  # inside: plane · (x, y, z, 1) ≤ 0
    quadric: Float[Tensor, "4 4"] | None  # inside: (x, y, z, 1) Q (x, y, z, 1) ≤ 0
    matrix: Float[Tensor, "3 3"]
    center: Float[Tensor, "3"]
    hull: Literal["cube", "tube", "ball"]  # what the unit shape certainly fits into
    paint: float

    def support(self, directions: Float[Tensor, "n 3"]) -> Float[Tensor, "n"]:
        """How far the solid reaches from its center in each direction, at most."""
        local = directions @ self.matrix
        if self.hull == "ball":
            return local.norm(dim=-1)
        if self.hull == "tube":
            return local[:, :2].norm(dim=-1) + local[:, 2].abs()
        return local.abs().sum(-1)

    def moved(self, scale: float, offset: Float[Tensor, "3"]) -> "Solid":
        """The solid at ``scale · x + offset``."""
        backward = torch.eye(4, dtype=torch.float64)
        backward[:3] /= scale
        backward[:3, 3] = -offset / scale
        quadric = None if self.quadric is None else backward.T @ self.quadric @ backward
        matrix, center = self.matrix * scale, self.center * scale + offset
        return replace(self, planes=self.planes @ backward, quadric=quadric, matrix=matrix, center=center)


def _vector(point: Sequence[float] | Tensor) -> Float[Tensor, "3"]:
    return torch.as_tensor(point, dtype=torch.float64)


def _solid(
    matrix: Float[Tensor, "3 3"],
    center: Float[Tensor, "3"],
    planes: list[list[float]],
    quadric: list[list[float]] | None,
    hull: Literal["cube", "tube", "ball"],
    paint: float,
) -> Solid:
    """A unit shape, given by its planes and quadric, at its place."""
    forward = torch.eye(4, dtype=torch.float64)
    forward[:3, :3], forward[:3, 3] = matrix, center
    backward = torch.linalg.inv(forward)
    moved_planes = torch.tensor(planes, dtype=torch.float64).reshape(-1, 4) @ backward
    moved = None if quadric is None else backward.T @ torch.tensor(quadric, dtype=torch.float64) @ backward
    return Solid(moved_planes, moved, matrix, center, hull, paint)


def turn(yaw: float = 0.0, pitch: float = 0.0, roll: float = 0.0) -> Float[Tensor, "3 3"]:
    """A rotation in degrees: roll about x, then pitch (positive lifts the front), then yaw to the left."""
    matrices = []
    for angle, first, second in ((yaw, 0, 1), (-pitch, 2, 0), (roll, 1, 2)):
        rotation = torch.eye(3, dtype=torch.float64)
        cosine, sine = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        rotation[first, first] = rotation[second, second] = cosine
        rotation[first, second], rotation[second, first] = -sine, sine
        matrices.append(rotation)
    return matrices[0] @ matrices[1] @ matrices[2]


def box(
    center: Point, size: Point, paint: float, *, taper: tuple[float, float] = (1.0, 1.0), lean: float = 0.0
) -> Solid:
    """A box of full lengths ``size``; ``taper`` shrinks the top's x and y, ``lean`` moves the top forward."""
    length, width, height = size
    matrix = torch.diag(_vector((length / 2, width / 2, height / 2)))
    matrix[0, 2] = lean / 2
    return _taper(matrix, _vector(center), taper, paint)


def blade(start: Point, end: Point, chord: Point, thickness: Point, paint: float, *, taper: float = 1.0) -> Solid:
    """A flat beam from start to end, wings and fins: chord and thickness are full lengths at the start."""
    first, last = _vector(start), _vector(end)
    matrix = torch.stack((_vector(chord) / 2, _vector(thickness) / 2, (last - first) / 2), dim=1)
    return _taper(matrix, (first + last) / 2, (taper, taper), paint)


def _taper(matrix: Tensor, center: Tensor, taper: tuple[float, float], paint: float) -> Solid:
    planes = [[0.0, 0.0, 1.0, -1.0], [0.0, 0.0, -1.0, -1.0]]
    for axis, top in enumerate(taper):
        for side in (1.0, -1.0):
            # |x| ≤ 1 at the bottom and ≤ top at the top: |x| + z (1 − top)/2 ≤ (1 + top)/2
            plane = [0.0, 0.0, (1.0 - top) / 2, -(1.0 + top) / 2]
            plane[axis] = side
            planes.append(plane)
    return _solid(matrix, center, planes, None, "cube", paint)


def ellipsoid(center: Point, radii: Point, paint: float, *, rotation: Tensor | None = None) -> Solid:
    """An ellipsoid with these half axes."""
    matrix = torch.diag(_vector(radii))
    if rotation is not None:
        matrix = rotation @ matrix
    sphere = [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, -1.0]]
    return _solid(matrix, _vector(center), [], sphere, "ball", paint)


def ball(center: Point, radius: float, paint: float) -> Solid:
    return ellipsoid(center, (radius, radius, radius), paint)


def dome(center: Point, radii: Point, paint: float) -> Solid:
    """The upper half of an ellipsoid, standing on its center."""
    whole = ellipsoid(center, radii, paint)
    return replace(whole, planes=torch.tensor([[0.0, 0.0, -1.0, center[2]]], dtype=torch.float64))


def cone(start: Point, end: Point, radius: float, end_radius: float, paint: float) -> Solid:
    """A round bar from start to end, of one radius at each: a cylinder where they are equal, pointed where one is 0."""
    if radius < end_radius:
        return cone(end, start, end_radius, radius, paint)
    first, last = _vector(start), _vector(end)
    axis = last - first
    # Any two directions across the axis do; the one furthest from it is safe to start from.
    helper = torch.zeros(3, dtype=torch.float64)
    helper[int(axis.abs().argmin())] = 1.0
    across = torch.linalg.cross(axis, helper)
    across = across / across.norm()
    other = torch.linalg.cross(axis, across)
    matrix = torch.stack((across * radius, other / other.norm() * radius, axis / 2), dim=1)
    ratio = end_radius / radius
    middle, slope = (1.0 + ratio) / 2, (1.0 - ratio) / 2  # the radius at height z is middle − slope · z
    quadric = [
        [1.0, 0, 0, 0],
        [0, 1.0, 0, 0],
        [0, 0, -slope * slope, slope * middle],
        [0, 0, slope * middle, -(middle**2)],
    ]
    planes = [[0.0, 0.0, 1.0, -1.0], [0.0, 0.0, -1.0, -1.0]]
    return _solid(matrix, (first + last) / 2, planes, quadric, "tube", paint)


def wheel(center: Point, radius: float, width: float, paint: float) -> Solid:
    """A cylinder that rolls forward."""
    x, y, z = center
    return cone((x, y - width / 2, z), (x, y + width / 2, z), radius, radius, paint)


def mirror(build: Sequence[Solid]) -> list[Solid]:
    """The solids and their mirror images to the other side (y to −y)."""
    flip = torch.diag(torch.tensor([1.0, -1.0, 1.0, 1.0], dtype=torch.float64))
    images = [
        replace(
            solid,
            planes=solid.planes @ flip,
            quadric=None if solid.quadric is None else flip @ solid.quadric @ flip,
            matrix=flip[:3, :3] @ solid.matrix,
            center=flip[:3, :3] @ solid.center,
        )
        for solid in build
    ]
    return [*build, *images]


def fit_solids(solids: Sequence[Solid], radius: float = 1.0) -> list[Solid]:
    """The toy, centered over the origin, standing on the ground, scaled to fit a ball of ``radius``."""
    axes = torch.eye(3, dtype=torch.float64)
    high = torch.stack([solid.center + solid.support(axes) for solid in solids]).amax(0)
    low = torch.stack([solid.center - solid.support(axes) for solid in solids]).amin(0)
    middle = (high + low) / 2
    # A sphere of directions (a Fibonacci lattice), dense enough that nothing sticks out by more than a percent.
    steps = torch.arange(400, dtype=torch.float64)
    height = 1 - (2 * steps + 1) / 400
    around = steps * math.pi * (3 - math.sqrt(5))
    ring = (1 - height.square()).sqrt()
    directions = torch.stack((ring * around.cos(), ring * around.sin(), height), dim=-1)
    reach = torch.stack([directions @ (solid.center - middle) + solid.support(directions) for solid in solids]).amax()
    scale = radius / float(reach)
    offset = -middle * scale
    offset[2] = -low[2] * scale
    return [solid.moved(scale, offset) for solid in solids]
