"""Parallel rays against convex solids, many views at once.

The cameras are orthographic, so over one picture everything about a ray is a polynomial in the pixel's place (u, v):
where it meets a plane is linear in them, and what stands under a quadric's root is quadratic. The coefficients are
found per view in float64, about the solid's own center; the pictures only add up a few float32 arrays. A solid is
computed only in the window of the picture that it can reach.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from torchcaps.data.toys.solids import Solid

FAR = 1e4
"""A depth beyond everything, small enough to calculate with."""


class CameraViews(NamedTuple):
    """Orthographic cameras that look along ``forward`` at one target; rows go down along −up. All unit vectors."""

    right: Float[Tensor, "view 3"]
    up: Float[Tensor, "view 3"]
    forward: Float[Tensor, "view 3"]
    target: Float[Tensor, "3"]


class Surfaces(NamedTuple):
    """What each pixel sees. Depth is along ``forward``, from the target's plane."""

    depth: Float[Tensor, "view row column"]
    normal: Float[Tensor, "3 view row column"]
    paint: Float[Tensor, "view row column"]


class _Crossing(NamedTuple):
    """Where rays enter and leave a solid in a window; the normal only where it was asked for."""

    entry: Float[Tensor, "view row column"]
    exit: Float[Tensor, "view row column"]
    normal: tuple[Tensor, Tensor, Tensor] | None


def looking(towards: Float[Tensor, "view 3"], target: Float[Tensor, "3"]) -> CameraViews:
    """CameraViews along these directions, upright (none may be straight up or down)."""
    forward = towards / towards.norm(dim=-1, keepdim=True)
    right = torch.linalg.cross(forward, forward.new_tensor([0.0, 0.0, 1.0]).expand_as(forward))
    right = right / right.norm(dim=-1, keepdim=True)
    return CameraViews(right, torch.linalg.cross(right, forward), forward, target)


def pixel_grid(size: int, extent: float) -> tuple[Float[Tensor, "column"], Float[Tensor, "row"]]:
    """The places (u to the right, v upwards) of the pixel centers of a square picture reaching ``extent`` each way."""
    steps = (torch.arange(size, dtype=torch.float32) + 0.5) * (2 * extent / size) - extent
    return steps, -steps


def _window(solid: Solid, views: CameraViews, size: int, extent: float) -> tuple[slice, slice] | None:
    """Rows and columns of the picture that the solid can touch in any of the views."""
    offset = solid.center - views.target
    bounds = []
    for axis, sign in ((views.up, -1.0), (views.right, 1.0)):
        middle, reach = sign * (axis @ offset), solid.support(axis)
        low = int((float((middle - reach).min()) + extent) * size / (2 * extent))
        high = int((float((middle + reach).max()) + extent) * size / (2 * extent)) + 1
        bounds.append(slice(max(low, 0), min(high, size)))
    rows, columns = bounds
    return (rows, columns) if rows.start < rows.stop and columns.start < columns.stop else None


def _field(constant: Tensor, by_u: Tensor, by_v: Tensor) -> Float[Tensor, "view row column"]:
    """constant + by_u + by_v over the window: (view) + (view, column) + (view, row)."""
    return (constant.to(torch.float32)[:, None] + by_u)[:, None, :] + by_v[:, :, None]


def _cross(solid: Solid, views: CameraViews, u: Tensor, v: Tensor, shading: bool) -> _Crossing:
    """The crossing of one solid, with u (view, column) and v (view, row) measured from the solid's center."""
    depth = views.forward @ (solid.center - views.target)
    shape = (len(depth), v.shape[1], u.shape[1])
    entry, leave = torch.full(shape, -FAR), torch.full(shape, FAR)
    normal: list[Tensor] = [torch.zeros(shape) for _ in range(3)] if shading else []
    if len(solid.planes):
        # Along the ray p = center + u·right + v·up + t·forward, plane · p = 0 at t = −(k0 + kr u + ku v) / kf.
        direction = solid.planes[:, :3]
        kr, ku, kf = (direction @ axis.T for axis in (views.right, views.up, views.forward))  # (plane, view)
        k0 = (direction @ solid.center + solid.planes[:, 3])[:, None].expand_as(kf)
        kf = torch.where(kf.abs() < 1e-9, 1e-9, kf)
        inward = kf < 0
        at, by_u, by_v = depth - k0 / kf, (-kr / kf).to(torch.float32), (-ku / kf).to(torch.float32)
        unit = direction / direction.norm(dim=-1, keepdim=True)
        for plane in range(len(direction)):
            enters = inward[plane]
            if bool(enters.any()):
                # In views where this plane is left, not entered, it must not count: a flat field far in front.
                field = _field(
                    torch.where(enters, at[plane], -2 * FAR),
                    torch.where(enters, by_u[plane], 0.0)[:, None] * u,
                    torch.where(enters, by_v[plane], 0.0)[:, None] * v,
                )
                later = field > entry
                entry = torch.maximum(entry, field)
                for k in range(len(normal)):
                    normal[k].masked_fill_(later, float(unit[plane, k]))
            if not bool(enters.all()):
                field = _field(
                    torch.where(enters, 2 * FAR, at[plane]),
                    torch.where(enters, 0.0, by_u[plane])[:, None] * u,
                    torch.where(enters, 0.0, by_v[plane])[:, None] * v,
                )
                leave = torch.minimum(leave, field)
    if solid.quadric is not None:
        entry, leave = _cross_quadric(solid, solid.quadric, views, u, v, depth, entry, leave, normal)
    return _Crossing(entry, leave, (normal[0], normal[1], normal[2]) if shading else None)


def _cross_quadric(
    solid: Solid,
    quadric: Float[Tensor, "4 4"],
    views: CameraViews,
    u: Tensor,
    v: Tensor,
    depth: Tensor,
    entry: Tensor,
    leave: Tensor,
    normal: list[Tensor],
) -> tuple[Tensor, Tensor]:
    """Narrow the crossing to the inside of the quadric; writes the round surface's normals where it is entered."""
    # The ray is origin + u·right + v·up + t·forward, in homogeneous coordinates; all products of these under Q.
    basis = torch.zeros(len(depth), 4, 4, dtype=torch.float64)
    basis[:, 0, :3], basis[:, 0, 3] = solid.center, 1.0
    basis[:, 1, :3], basis[:, 2, :3], basis[:, 3, :3] = views.right, views.up, views.forward
    sloped = basis @ quadric  # half the gradient's part for each of the four
    gram = sloped @ basis.mT
    # Along the ray the quadric is a t² + 2 b t + c, with b linear and c quadratic in (u, v).
    a = gram[:, 3, 3]
    a = torch.where(a.abs() < 1e-9, 1e-9, a)
    b = gram[:, 3, :3] / a[:, None]
    # The root's content (b² − a c) / a², term by term.
    terms = (b[:, :, None] * b[:, None, :] - gram[:, :3, :3] / a[:, None, None]).to(torch.float32)
    by_u, by_v, by_uu, by_vv, by_uv = (terms[:, i, j, None] for i, j in ((0, 1), (0, 2), (1, 1), (2, 2), (1, 2)))
    content = _field(terms[:, 0, 0], (by_uu * u + 2 * by_u) * u, (by_vv * v + 2 * by_v) * v)
    content.addcmul_((2 * by_uv * u)[:, None, :], v[:, :, None])
    root = content.clamp_min(0.0).sqrt_()
    slope = -b.to(torch.float32)
    middle = _field(depth - b[:, 0], slope[:, 1, None] * u, slope[:, 2, None] * v)
    near, far = middle - root, middle + root
    steep = a < 0
    if bool(steep.any()):
        # Looking into a cone more steeply than its side: inside is before the first or after the second crossing,
        # on the half of the double cone that the solid is; the planes at its ends cut off the other one.
        widening = (views.forward @ torch.linalg.inv(solid.matrix)[2] < 0)[:, None, None]
        steep = steep[:, None, None]
        near, far = (
            torch.where(steep, torch.where(widening, far, -2 * FAR), near),
            torch.where(steep, torch.where(widening, 2 * FAR, near), far),
        )
    later = near > entry
    entry, leave = torch.maximum(entry, near), torch.minimum(leave, far)
    # No root, no crossing: such rays leave before they enter.
    leave.masked_fill_(content <= 0, -2 * FAR)
    if normal:
        # The gradient, along Q p: linear in (u, v, t); t is measured from the center's depth.
        along = near - depth.to(torch.float32)[:, None, None]
        gradient = []
        sloped = sloped.to(torch.float32)
        for k in range(3):
            part = _field(sloped[:, 0, k], sloped[:, 1, k, None] * u, sloped[:, 2, k, None] * v)
            gradient.append(part.addcmul_(along, sloped[:, 3, k, None, None]))
        length = (gradient[0].square() + gradient[1].square()).addcmul_(gradient[2], gradient[2])
        shrink = length.clamp_min_(1e-12).rsqrt_()
        for k in range(3):
            normal[k] = torch.where(later, gradient[k].mul_(shrink), normal[k])
    return entry, leave


def cast(solids: list[Solid], views: CameraViews, size: int, extent: float, ground_paint: float) -> Surfaces:
    """What each view sees of the solids on the ground."""
    u, v = pixel_grid(size, extent)
    count = len(views.forward)
    # The ground z = 0 lies behind everything.
    slope = views.forward[:, 2]
    by_u, by_v = (-(axis[:, 2] / slope).to(torch.float32)[:, None] for axis in (views.right, views.up))
    depth = _field(-views.target[2] / slope, by_u * u, by_v * v)
    normal = torch.zeros(3, count, size, size)
    normal[2] = 1.0
    paint = torch.full((count, size, size), ground_paint)
    for solid in solids:
        window = _window(solid, views, size, extent)
        if window is None:
            continue
        crossing = _crossing_in(solid, views, window, u, v, shading=True)
        rows, columns = window
        seen = (crossing.entry < crossing.exit) & (crossing.entry < depth[:, rows, columns])
        depth[:, rows, columns] = torch.where(seen, crossing.entry, depth[:, rows, columns])
        paint[:, rows, columns].masked_fill_(seen, solid.paint)
        assert crossing.normal is not None
        for k in range(3):
            normal[k, :, rows, columns] = torch.where(seen, crossing.normal[k], normal[k, :, rows, columns])
    return Surfaces(depth, normal, paint)


def cast_shadow(solids: list[Solid], views: CameraViews, size: int, extent: float) -> Float[Tensor, "view row column"]:
    """The depth, along the light, behind which it is dark; FAR where nothing stands in the light.

    The middle of the first solid is taken, not its front, so that rounding does not make a surface shade itself.
    """
    u, v = pixel_grid(size, extent)
    depth = torch.full((len(views.forward), size, size), FAR)
    for solid in solids:
        window = _window(solid, views, size, extent)
        if window is None:
            continue
        crossing = _crossing_in(solid, views, window, u, v, shading=False)
        rows, columns = window
        middle = ((crossing.entry + crossing.exit) * 0.5).masked_fill_(crossing.entry >= crossing.exit, FAR)
        depth[:, rows, columns] = torch.minimum(middle, depth[:, rows, columns])
    return depth


def _crossing_in(
    solid: Solid, views: CameraViews, window: tuple[slice, slice], u: Tensor, v: Tensor, *, shading: bool
) -> _Crossing:
    rows, columns = window
    offset = solid.center - views.target
    around_u = u[None, columns] - (views.right @ offset).to(torch.float32)[:, None]
    around_v = v[None, rows] - (views.up @ offset).to(torch.float32)[:, None]
    return _cross(solid, views, around_u, around_v, shading)
