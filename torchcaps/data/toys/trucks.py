"""Ten trucks: boxes, tankers, tippers, logs, a mixer, a container and a fire engine. Lengths are in arbitrary units."""

from dataclasses import dataclass
from typing import Literal

from torchcaps.data.toys.solids import DARK, GLASS, Solid, blade, box, cone, ellipsoid, mirror, wheel


@dataclass(frozen=True)
class Truck:
    """A cab in front of a load on a frame with three axles or more."""

    load: Literal["box", "tank", "dump", "logs", "mixer", "ladder", "open", "container"] = "box"
    length: float = 2.2
    width: float = 0.66
    cab: float = 0.5
    cab_height: float = 0.72
    bonnet: float = 0.0
    load_height: float = 0.8
    tyre: float = 0.17
    gap: float = 0.1
    paint: float = 0.62
    load_paint: float = 0.75


TRUCKS = (
    Truck("box", load_height=0.85),
    Truck("tank", 2.4, bonnet=0.3, load_height=0.62, paint=0.5),
    Truck("dump", 2.0, 0.72, 0.5, 0.75, load_height=0.5, tyre=0.21, paint=0.7, load_paint=0.55),
    Truck("logs", 2.4, bonnet=0.28, load_height=0.5, paint=0.55, load_paint=0.6),
    Truck("container", 2.7, 0.62, 0.48, 0.75, load_height=0.75, paint=0.5, load_paint=0.7),
    Truck("ladder", 2.3, 0.62, 0.6, 0.62, load_height=0.5, paint=0.6, load_paint=0.6),
    Truck("tank", 2.5, 0.64, 0.5, 0.74, load_height=0.66, paint=0.65, load_paint=0.7),
    Truck("dump", 2.1, 0.7, 0.48, 0.7, 0.3, 0.45, 0.2, paint=0.55, load_paint=0.68),
    Truck("box", 2.0, 0.68, 0.46, 0.66, 0.26, 0.75, paint=0.6, load_paint=0.55),
    Truck("mixer", 2.2, 0.66, 0.5, 0.74, load_height=0.7, paint=0.66, load_paint=0.6),
)


def build_truck(truck: Truck) -> list[Solid]:
    front, back, floor = truck.length / 2, -truck.length / 2, truck.tyre * 1.55
    width = truck.width
    cab_at = front - truck.bonnet - truck.cab / 2
    parts = [
        box((0.0, 0.0, floor - 0.03), (truck.length * 0.98, width * 0.62, 0.1), DARK),
        box(
            (cab_at, 0.0, floor + truck.cab_height * 0.28),
            (truck.cab, width * 0.96, truck.cab_height * 0.56),
            truck.paint,
        ),
        box(
            (cab_at, 0.0, floor + truck.cab_height * 0.7),
            (truck.cab * 0.96, width * 0.92, truck.cab_height * 0.3),
            GLASS,
            taper=(0.86, 0.92),
        ),
        box(
            (cab_at - 0.02, 0.0, floor + truck.cab_height * 0.89),
            (truck.cab * 0.86, width * 0.88, truck.cab_height * 0.1),
            truck.paint,
        ),
        box((front, 0.0, floor + 0.03), (0.07, width * 0.98, 0.1), DARK),
    ]
    if truck.bonnet:
        bonnet_at = front - truck.bonnet / 2
        parts.append(
            box(
                (bonnet_at, 0.0, floor + 0.16),
                (truck.bonnet, width * 0.8, 0.34),
                truck.paint,
                taper=(0.92, 0.85),
                lean=-0.02,
            )
        )
    start = cab_at - truck.cab / 2 - truck.gap
    parts += _load(truck, back, start, floor + 0.03)
    axles = [cab_at + (truck.bonnet * 0.7 if truck.bonnet else 0.02), back + 0.24, back + 0.24 + truck.tyre * 2.15]
    if truck.load == "container":
        axles.insert(1, cab_at - truck.cab / 2 - truck.tyre * 1.2)
    side = width / 2 - 0.04
    wheels = [wheel((x, side, truck.tyre), truck.tyre, 0.14, DARK) for x in axles]
    hubs = [wheel((x, side + 0.05, truck.tyre), truck.tyre * 0.5, 0.08, 0.6) for x in axles]
    return [*parts, *mirror([*wheels, *hubs])]


def _load(truck: Truck, back: float, start: float, floor: float) -> list[Solid]:
    middle, length, width, height, paint = (
        (back + start) / 2,
        start - back,
        truck.width,
        truck.load_height,
        truck.load_paint,
    )
    if truck.load in ("box", "container"):
        return [box((middle, 0.0, floor + height / 2), (length, width * 1.04, height), paint)]
    if truck.load == "tank":
        radius = height / 2
        axis = floor + radius + 0.02
        bands = [
            cone(
                (middle + s * length * 0.3 - 0.02, 0.0, axis),
                (middle + s * length * 0.3 + 0.02, 0.0, axis),
                radius * 1.03,
                radius * 1.03,
                DARK,
            )
            for s in (-1.0, 1.0)
        ]
        return [
            cone((back, 0.0, axis), (start, 0.0, axis), radius, radius, paint),
            *bands,
            cone((middle, 0.0, axis + radius - 0.02), (middle, 0.0, axis + radius + 0.07), 0.11, 0.11, paint * 0.8),
        ]
    if truck.load == "dump":
        # An open tray: a floor and four walls, the front one higher.
        walls = mirror([box((middle, width / 2, floor + height / 2), (length, 0.06, height), paint)])
        ends = [
            box((back, 0.0, floor + height / 2), (0.06, width, height), paint),
            box((start, 0.0, floor + height * 0.62), (0.06, width * 1.06, height * 1.24), paint),
        ]
        heap = ellipsoid((middle, 0.0, floor + height * 0.55), (length * 0.42, width * 0.4, height * 0.5), paint * 0.55)
        return [box((middle, 0.0, floor + 0.04), (length, width, 0.08), paint), *walls, *ends, heap]
    if truck.load == "logs":
        radius = width * 0.165
        rows = [(-1.0, 0.0), (0.0, 0.0), (1.0, 0.0), (-0.5, 1.0), (0.5, 1.0), (0.0, 2.0)]
        logs = [
            cone(
                (back - 0.04, y * 2 * radius, floor + radius + z * 1.73 * radius),
                (start, y * 2 * radius, floor + radius + z * 1.73 * radius),
                radius,
                radius,
                paint,
            )
            for y, z in rows
        ]
        posts = [
            cone((x, width / 2 + 0.01, floor), (x, width / 2 + 0.01, floor + height), 0.03, 0.03, DARK)
            for x in (back + 0.2, start - 0.2)
        ]
        return [*logs, *mirror(posts)]
    if truck.load == "mixer":
        low, high = (start, 0.0, floor + height * 0.45), (back - 0.02, 0.0, floor + height * 0.75)
        waist = (middle + length * 0.1, 0.0, floor + height * 0.56)
        drum = [cone(waist, low, width * 0.5, width * 0.26, paint), cone(waist, high, width * 0.5, width * 0.2, paint)]
        return [
            *drum,
            box((middle, 0.0, floor + 0.08), (length, width * 0.5, 0.16), truck.paint),
            cone((back, 0.0, floor + height * 0.62), (back - 0.12, 0.0, floor + 0.12), 0.09, 0.05, DARK),
        ]
    # A fire engine: a closed body and the ladder on it.
    rails = mirror(
        [
            blade(
                (back - 0.02, 0.13, floor + height + 0.08),
                (start + truck.cab * 0.9, 0.11, floor + height + 0.2),
                (0.0, 0.04, 0.0),
                (0.0, 0.0, 0.05),
                0.85,
            )
        ]
    )
    rungs = [
        cone(
            (back + (k + 0.5) * length / 6, -0.12, floor + height + 0.09 + 0.018 * k),
            (back + (k + 0.5) * length / 6, 0.12, floor + height + 0.09 + 0.018 * k),
            0.02,
            0.02,
            0.85,
        )
        for k in range(7)
    ]
    return [box((middle, 0.0, floor + height / 2), (length, width, height), paint), *rails, *rungs]
