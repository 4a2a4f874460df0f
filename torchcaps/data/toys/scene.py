"""The studio: two cameras, four lamps, and what they make of a toy on a turntable.

As for smallNORB the turntable turns the toy while cameras and lamps stay where they are, the camera pair climbs
from 30° to 70° above the horizon, and six combinations of the lamps are six lightings. Seen from the toy, cameras and
lamps go round it together; that is how it is calculated.
"""

import math

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, UInt8
from torch import Tensor

from torchcaps.data.toys.casting import FAR, CameraViews, Surfaces, cast, cast_shadow, looking, pixel_grid
from torchcaps.data.toys.solids import Solid

ELEVATIONS, AZIMUTHS, LIGHTINGS = 9, 18, 6
EYE_ANGLE = 4.0
"""Degrees by which each camera of the pair stands beside the middle."""

EXTENT = 1.04
SUPERSAMPLING = 2
GROUND_PAINT = 0.76
# Each lamp: degrees to the right of the cameras as the toy sees them, and degrees above the horizon.
LAMPS = ((-55.0, 42.0), (60.0, 38.0), (165.0, 55.0), (25.0, 72.0))
# How bright each lamp is in each lighting, and how bright the room.
LAMP_LEVELS = (
    (0.85, 0.00, 0.00, 0.00),
    (0.00, 0.95, 0.00, 0.00),
    (0.00, 0.00, 0.75, 0.10),
    (0.05, 0.00, 0.00, 0.65),
    (0.45, 0.45, 0.00, 0.00),
    (0.30, 0.25, 0.30, 0.30),
)
ROOM_LEVELS = (0.40, 0.34, 0.36, 0.26, 0.36, 0.34)
SHADOW_SIZE = 160
SHADOW_BIAS = 0.02


def _direction(azimuth: Tensor, elevation: Tensor) -> Float[Tensor, "n 3"]:
    """From the toy to what stands at these angles, in degrees."""
    around, above = torch.deg2rad(azimuth), torch.deg2rad(elevation)
    return torch.stack((above.cos() * around.cos(), above.cos() * around.sin(), above.sin()), dim=-1)


def camera_views(azimuth: float, elevations: Float[Tensor, "n"], target: Float[Tensor, "3"]) -> CameraViews:
    """The camera pairs at one azimuth: for each elevation the left camera, then the right."""
    middle = looking(-_direction(torch.full_like(elevations, azimuth), elevations), target)
    # The left camera stands to the left and looks a little to the right. Both keep the middle's upward direction, as
    # cameras on one bar do: turning each upright by itself would roll the pictures against each other.
    angle = math.radians(EYE_ANGLE)
    aside = middle.right.new_tensor([angle, -angle])[None, :, None]
    forward = aside.cos() * middle.forward[:, None] + aside.sin() * middle.right[:, None]
    right = aside.cos() * middle.right[:, None] - aside.sin() * middle.forward[:, None]
    up = middle.up[:, None].expand_as(right)
    flat = [rearrange(axis, "n eye a -> (n eye) a") for axis in (right, up, forward)]
    return CameraViews(flat[0], flat[1], flat[2], target)


def lamp_views(azimuth: float, target: Float[Tensor, "3"]) -> CameraViews:
    """The lamps as cameras, when the cameras are at this azimuth."""
    angles = torch.tensor(LAMPS, dtype=torch.float64)
    return looking(-_direction(azimuth + angles[:, 0], angles[:, 1]), target)


def _lit(surfaces: Surfaces, views: CameraViews, lamp: CameraViews, shadow: Float[Tensor, "row column"]) -> Tensor:
    """1 where the lamp (a single view) reaches the surface, 0 in shadow."""
    size = surfaces.depth.shape[-1]
    u, v = pixel_grid(size, EXTENT)
    places = []
    for axis in (lamp.right[0], lamp.up[0], lamp.forward[0]):
        by_u, by_v, by_depth = (side @ axis for side in (views.right, views.up, views.forward))
        flat = (by_u.to(torch.float32)[:, None] * u)[:, None, :] + (by_v.to(torch.float32)[:, None] * v)[:, :, None]
        places.append(flat.addcmul_(surfaces.depth, by_depth.to(torch.float32)[:, None, None]))
    across, upward, along = places
    scale = SHADOW_SIZE / (2 * EXTENT)
    # The map's margin is empty, so whatever lies outside may read the margin: it is lit.
    column = across.add_(EXTENT).mul_(scale).clamp_(0, SHADOW_SIZE - 1).to(torch.int32)
    row = upward.neg_().add_(EXTENT).mul_(scale).clamp_(0, SHADOW_SIZE - 1).to(torch.int32)
    texel = row.mul_(SHADOW_SIZE).add_(column).flatten()
    limit = shadow.flatten().index_select(0, texel).reshape(along.shape)
    return along < limit.add_(SHADOW_BIAS)


def _light_images(solids: list[Solid], views: CameraViews, lamps: CameraViews, shadows: Tensor, size: int) -> Tensor:
    """(view, light, row, column): the toy under each lamp alone, then in the light of the room."""
    surfaces = cast(solids, views, size * SUPERSAMPLING, EXTENT, GROUND_PAINT)
    images = []
    for k in range(len(LAMPS)):
        lamp = CameraViews(lamps.right[k : k + 1], lamps.up[k : k + 1], lamps.forward[k : k + 1], lamps.target)
        x, y, z = (-float(part) for part in lamp.forward[0])
        facing = (surfaces.normal[0] * x).add_(surfaces.normal[1], alpha=y).add_(surfaces.normal[2], alpha=z)
        lit = _lit(surfaces, views, lamp, shadows[k])
        images.append(F.avg_pool2d(facing.clamp_min_(0.0).mul_(lit).mul_(surfaces.paint), SUPERSAMPLING))
    # The room's light comes from above: what faces down gets half of it.
    images.append(F.avg_pool2d((surfaces.normal[2] * 0.25).add_(0.75).mul_(surfaces.paint), SUPERSAMPLING))
    return torch.stack(images, dim=1)


def photograph(
    solids: list[Solid],
    *,
    elevations: tuple[int, ...] = tuple(range(ELEVATIONS)),
    azimuths: tuple[int, ...] = tuple(range(AZIMUTHS)),
    lightings: tuple[int, ...] = tuple(range(LIGHTINGS)),
    size: int = 96,
) -> UInt8[Tensor, "elevation azimuth lighting eye row column"]:
    """Stereo pairs of a fitted toy: elevation k is 30 + 5k degrees, azimuth k is 20k degrees."""
    top = max(float(solid.center[2] + solid.support(solid.center.new_tensor([[0.0, 0.0, 1.0]]))[0]) for solid in solids)
    target = torch.tensor([0.0, 0.0, top / 2], dtype=torch.float64)
    angles = torch.tensor(elevations, dtype=torch.float64) * 5.0 + 30.0
    levels = torch.tensor([[*LAMP_LEVELS[k], ROOM_LEVELS[k]] for k in lightings], dtype=torch.float32)
    out = torch.empty(len(azimuths), len(elevations), 2, len(lightings), size, size, dtype=torch.uint8)
    for k, azimuth in enumerate(azimuths):
        lamps = lamp_views(20.0 * azimuth, target)
        shadows = cast_shadow(solids, lamps, SHADOW_SIZE, EXTENT)
        shadows[:, [0, -1], :], shadows[:, :, [0, -1]] = FAR, FAR
        parts = _light_images(solids, camera_views(20.0 * azimuth, angles, target), lamps, shadows, size)
        # The lamps' light adds up. No matrix product: its rounding may depend on how many pictures there are.
        total = levels[:, 0, None, None] * parts[:, None, 0]
        for light in range(1, levels.shape[1]):
            total.addcmul_(levels[:, light, None, None], parts[:, None, light])
        gray = total.clamp_(0.0, 1.0).mul_(255.0).round_().to(torch.uint8)
        out[k] = rearrange(gray, "(elevation eye) light row column -> elevation eye light row column", eye=2)
    return rearrange(out, "azimuth elevation eye light row column -> elevation azimuth light eye row column")
