"""The ray caster against a judge that shares nothing with it: walking along rays and asking what is inside."""

import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from torchcaps.data.toys.casting import FAR, cast, cast_shadow, looking, pixel_grid
from torchcaps.data.toys.solids import Solid, ball, blade, box, cone, dome, ellipsoid, fit_solids, mirror, turn, wheel

SIZE, EXTENT = 24, 1.3


def inside_box(p: Tensor) -> Tensor:
    """The tapered box of SHAPES, in plain words."""
    x, y, z = (p - p.new_tensor([0.1, 0.0, 0.5])).unbind(-1)
    at = (z + 0.3) / 0.6  # 0 at the bottom, 1 at the top
    return (z.abs() <= 0.3) & ((x - 0.2 * (at - 0.5)).abs() <= 0.4 * (1 - 0.5 * at)) & (y.abs() <= 0.3 * (1 - 0.2 * at))


def inside_ellipsoid(p: Tensor) -> Tensor:
    tilted = (p - p.new_tensor([0.0, 0.1, 0.6])) @ turn(yaw=30.0, pitch=20.0, roll=10.0)
    return (tilted / p.new_tensor([0.6, 0.2, 0.3])).square().sum(-1) <= 1


def inside_dome(p: Tensor) -> Tensor:
    return ((p - p.new_tensor([0, 0, 0.4])) / p.new_tensor([0.5, 0.4, 0.5])).square().sum(-1).le(1) & (p[..., 2] >= 0.4)


def inside_cone(
    start: tuple[float, ...], end: tuple[float, ...], radius: float, end_radius: float, p: Tensor
) -> Tensor:
    first, last = p.new_tensor(start), p.new_tensor(end)
    axis = last - first
    at = (p - first) @ axis / axis.square().sum()
    across = (p - first - at[..., None] * axis).norm(dim=-1)
    return (at >= 0) & (at <= 1) & (across <= radius + (end_radius - radius) * at)


STEEP = ((0.0, 0.0, 0.1), (0.1, 0.1, 0.5), 0.8, 0.1)  # flatter than most views: seen from inside its double cone
SPEAR = ((-0.5, -0.3, 0.2), (0.4, 0.3, 0.8), 0.02, 0.2)
SHAPES = {
    "box": (box((0.1, 0.0, 0.5), (0.8, 0.6, 0.6), 0.5, taper=(0.5, 0.8), lean=0.2), inside_box),
    "ellipsoid": (
        ellipsoid((0.0, 0.1, 0.6), (0.6, 0.2, 0.3), 0.5, rotation=turn(yaw=30.0, pitch=20.0, roll=10.0)),
        inside_ellipsoid,
    ),
    "dome": (dome((0.0, 0.0, 0.4), (0.5, 0.4, 0.5), 0.5), inside_dome),
    "steep cone": (cone(*STEEP, 0.5), lambda p: inside_cone(*STEEP, p)),
    "spear": (cone(*SPEAR, 0.5), lambda p: inside_cone(*SPEAR, p)),
    "wheel": (
        wheel((0.1, 0.2, 0.5), 0.4, 0.2, 0.5),
        lambda p: inside_cone((0.1, 0.1, 0.5), (0.1, 0.3, 0.5), 0.4, 0.4, p),
    ),
}


def view_points(views, u: Tensor, v: Tensor, depth: Tensor) -> Tensor:
    """The points in space of pixels at a depth: (view, row, column, 3)."""
    flat = u[None, None, :, None] * views.right[:, None, None] + v[None, :, None, None] * views.up[:, None, None]
    return views.target + flat + depth[..., None] * views.forward[:, None, None]


@pytest.mark.parametrize("shape", SHAPES)
@given(azimuth=st.floats(0, 360), elevation=st.floats(5, 85))
@example(azimuth=0.0, elevation=43.1875)
@settings(max_examples=8, deadline=None)
def test_depth_is_where_a_walk_along_the_ray_enters(shape: str, azimuth: float, elevation: float) -> None:
    solid, inside = SHAPES[shape]
    around, above = math.radians(azimuth), math.radians(elevation)
    towards = -torch.tensor(
        [[math.cos(above) * math.cos(around), math.cos(above) * math.sin(around), math.sin(above)]], dtype=torch.float64
    )
    views = looking(towards, torch.tensor([0.0, 0.0, 0.5], dtype=torch.float64))
    # The ground is moved out of the way by lifting everything, camera and all.
    lift = torch.tensor([0.0, 0.0, 50.0], dtype=torch.float64)
    lifted = solid.moved(1.0, lift)
    surfaces = cast([lifted], views._replace(target=views.target + lift), SIZE, EXTENT, ground_paint=0.0)
    u, v = (axis.double() for axis in pixel_grid(SIZE, EXTENT))
    step = 0.008
    walked = torch.full((1, SIZE, SIZE), FAR, dtype=torch.float64)
    for depth in torch.arange(2.0, -2.0, -step, dtype=torch.float64):
        walked[inside(view_points(views, u, v, depth.expand(1, SIZE, SIZE)))] = depth
    hit = surfaces.paint > 0
    # The walk may step over a thin edge that the caster sees; the caster may miss nothing but by rounding.
    assert (~hit & (walked < FAR)).float().mean() < 0.003
    assert (hit & (walked == FAR)).float().mean() < 0.04
    both = hit & (walked < FAR)
    assert both.any()
    apart = walked[both] - surfaces.depth.double()[both]
    assert apart.min() > -1e-4
    assert apart.quantile(0.97) < step + 1e-4
    # Normals are of unit length and point outward: a little along them is outside, a little against them inside.
    normal = surfaces.normal.double().movedim(0, -1)[both]
    torch.testing.assert_close(normal.norm(dim=-1), torch.ones(len(normal), dtype=torch.float64), atol=1e-4, rtol=0)
    points = view_points(views, u, v, surfaces.depth.double())[both]
    assert (~inside(points + 2e-3 * normal)).double().mean() > 0.98
    # Thin edges and tips have no inside 2e-3 deep: a tip is one pixel, which is a large share of the few of a spear.
    assert (~inside(points - 2e-3 * normal)).sum() <= max(1.0, 0.07 * len(points))


def test_nearer_solids_hide_farther_ones() -> None:
    near, far = ball((0.5, 0.0, 0.5), 0.2, 0.9), ball((-0.5, 0.0, 0.5), 0.4, 0.4)
    views = looking(torch.tensor([[-1.0, 0.0, -0.05]], dtype=torch.float64), torch.tensor([0.0, 0.0, 0.5]).double())
    for order in ([near, far], [far, near]):
        paint = cast(order, views, 41, 1.0, ground_paint=0.1).paint[0]
        assert paint[20, 20] == pytest.approx(0.9)
        assert paint[20, 27] == pytest.approx(0.4)
        assert paint[40, 0] == pytest.approx(0.1)
    # A ball of radius 0.4 covers π 0.16 of the picture's 4.
    assert (cast([far], views, 200, 1.0, 0.0).paint > 0).float().mean() == pytest.approx(math.pi * 0.04, rel=0.01)


def test_shadow_depth_is_the_middle_of_the_solid() -> None:
    views = looking(torch.tensor([[-1.0, 0.0, -1.0]], dtype=torch.float64), torch.tensor([0.0, 0.0, 0.5]).double())
    depth = cast_shadow([ball((0.0, 0.0, 0.5), 0.3, 0.5)], views, 41, 1.0)[0]
    assert depth[20, 20] == pytest.approx(0.0, abs=1e-5)
    assert depth[0, 0] == FAR


def test_mirroring_and_fitting() -> None:
    toy: list[Solid] = mirror(
        [blade((0.0, 0.0, 1.0), (1.0, 3.0, 2.0), (1.0, 0.0, 0.0), (0.0, 0.0, 0.1), 0.5, taper=0.5)]
    )
    assert torch.equal(toy[0].center * torch.tensor([1.0, -1.0, 1.0]), toy[1].center)
    fit = fit_solids(toy, radius=2.0)
    axes = torch.eye(3, dtype=torch.float64)
    low = torch.stack([solid.center - solid.support(axes) for solid in fit]).amin(0)
    high = torch.stack([solid.center + solid.support(axes) for solid in fit]).amax(0)
    assert low[2] == pytest.approx(0.0, abs=1e-12)
    torch.testing.assert_close(low[:2], -high[:2])
    assert 3.5 < float((high - low).max()) <= 4.0  # the blade's ends lie askew, so the ball is a little wider
