"""Ten animals: horse, bear, camel, cat, elephant, pig, cow, giraffe, dog and deer. Lengths are in arbitrary units."""

import math
from dataclasses import dataclass
from typing import Literal

from torchcaps.data.toys.solids import Point, Solid, ball, cone, ellipsoid, mirror, turn


@dataclass(frozen=True)
class Animal:
    """Neck and tail angles are degrees above the horizontal, forward and backward."""

    body: float = 1.0
    width: float = 0.19
    depth: float = 0.22
    leg: float = 0.5
    leg_width: float = 0.075
    neck: float = 0.35
    neck_angle: float = 45.0
    neck_width: float = 0.12
    head: float = 0.15
    snout: float = 0.22
    ears: Literal["up", "round", "wide", "floppy"] = "up"
    ear: float = 0.12
    tail: float = 0.4
    tail_angle: float = -50.0
    tail_width: float = 0.04
    extra: Literal["none", "trunk", "horns", "antlers", "hump", "mane"] = "none"
    paint: float = 0.6


ANIMALS = (
    Animal(1.05, 0.19, 0.22, 0.58, 0.075, 0.45, 52.0, 0.13, 0.14, 0.28, "up", 0.12, 0.5, -65.0, 0.06, "mane", 0.55),
    Animal(1.05, 0.27, 0.3, 0.34, 0.12, 0.16, 20.0, 0.2, 0.21, 0.16, "round", 0.09, 0.06, 0.0, 0.05, paint=0.5),
    Animal(1.0, 0.2, 0.24, 0.62, 0.08, 0.55, 50.0, 0.1, 0.13, 0.22, "up", 0.08, 0.3, -60.0, 0.03, "hump", 0.65),
    Animal(0.85, 0.15, 0.16, 0.34, 0.055, 0.16, 50.0, 0.1, 0.14, 0.1, "up", 0.12, 0.55, 35.0, 0.04, paint=0.62),
    Animal(1.1, 0.3, 0.34, 0.42, 0.13, 0.12, 25.0, 0.2, 0.23, 0.08, "wide", 0.26, 0.35, -70.0, 0.03, "trunk", 0.52),
    Animal(0.95, 0.25, 0.26, 0.24, 0.08, 0.1, 10.0, 0.19, 0.18, 0.14, "floppy", 0.1, 0.18, 40.0, 0.025, paint=0.7),
    Animal(
        1.15, 0.24, 0.28, 0.42, 0.085, 0.24, 25.0, 0.16, 0.17, 0.24, "floppy", 0.13, 0.5, -75.0, 0.03, "horns", 0.66
    ),
    Animal(0.8, 0.18, 0.22, 0.68, 0.07, 0.95, 68.0, 0.1, 0.12, 0.22, "up", 0.09, 0.4, -65.0, 0.03, paint=0.62),
    Animal(0.9, 0.16, 0.18, 0.42, 0.06, 0.22, 48.0, 0.11, 0.15, 0.2, "floppy", 0.15, 0.4, 40.0, 0.045, paint=0.58),
    Animal(0.9, 0.16, 0.19, 0.56, 0.055, 0.38, 58.0, 0.09, 0.12, 0.2, "up", 0.12, 0.12, 30.0, 0.05, "antlers", 0.6),
)


def build_animal(animal: Animal) -> list[Solid]:
    half, width, depth, paint = animal.body / 2, animal.width, animal.depth, animal.paint
    back = animal.leg + depth * 0.8  # the height of the body's axis
    chest, rump = (half * 0.55, 0.0, back), (-half * 0.6, 0.0, back)
    # A round bar with rounded ends of the same radius has no creases.
    thin, stout = (width + depth) * 0.47, (width + depth) * 0.5
    parts = [
        cone(chest, rump, stout, thin, paint),
        ellipsoid(chest, (half * 0.45, stout, stout), paint),
        ellipsoid(rump, (half * 0.4, thin, thin), paint),
    ]
    hip, thick = width * 0.62, animal.leg_width
    legs = []
    for x, step in ((half * 0.6, 0.03), (-half * 0.68, -0.03)):
        legs.append(cone((x, hip, back - depth * 0.2), (x + step, hip, 0.03), thick * 1.35, thick * 0.85, paint))
        legs.append(
            ellipsoid((x + step + thick * 0.3, hip, thick * 0.5), (thick * 1.25, thick, thick * 0.5), paint * 0.6)
        )
    angle = math.radians(animal.neck_angle)
    root = (half * 0.7, 0.0, back + depth * 0.25)
    head = (root[0] + math.cos(angle) * animal.neck + 0.1, 0.0, root[2] + math.sin(angle) * animal.neck + 0.05)
    parts.append(cone(root, head, animal.neck_width * 1.35, animal.neck_width * 0.9, paint))
    tail = math.radians(animal.tail_angle)
    start = (-half * 0.95, 0.0, back + depth * 0.35)
    end = (start[0] - math.cos(tail) * animal.tail, 0.0, start[2] + math.sin(tail) * animal.tail)
    parts.append(cone(start, end, animal.tail_width, animal.tail_width * 0.6, paint))
    parts.append(ball(end, animal.tail_width * 0.8, paint))
    return [*parts, *mirror(legs), *_head(animal, head), *_extra(animal, head, root, back)]


def _head(animal: Animal, at: Point) -> list[Solid]:
    x, _, z = at
    size, paint = animal.head, animal.paint
    muzzle = (x + size * 0.6 + animal.snout, 0.0, z - animal.snout * 0.45)
    parts = [
        ellipsoid(at, (size * 1.1, size * 0.82, size * 0.9), paint),
        cone((x + size * 0.2, 0.0, z - size * 0.1), muzzle, size * 0.68, size * 0.45, paint),
        ball(muzzle, size * 0.45, paint * 0.8),
    ]
    ear = animal.ear
    if animal.ears == "up":
        sides = [
            cone(
                (x - size * 0.4, size * 0.5, z + size * 0.5),
                (x - size * 0.5, size * 0.75, z + size * 0.6 + ear),
                ear * 0.5,
                0.01,
                paint,
            )
        ]
    elif animal.ears == "round":
        sides = [ellipsoid((x - size * 0.3, size * 0.7, z + size * 0.75), (ear * 0.4, ear * 0.8, ear * 0.9), paint)]
    elif animal.ears == "wide":
        sides = [
            ellipsoid(
                (x - size * 0.5, size * 0.8 + ear * 0.65, z - ear * 0.2),
                (0.06, ear * 0.9, ear),
                paint,
                rotation=turn(yaw=25.0),
            )
        ]
    else:
        sides = [
            ellipsoid(
                (x - size * 0.35, size * 0.85, z + size * 0.1),
                (ear * 0.5, 0.035, ear),
                paint * 0.7,
                rotation=turn(roll=-20.0),
            )
        ]
    sides.append(ball((x + size * 0.55, size * 0.55, z + size * 0.3), size * 0.16, 0.1))
    return [*parts, *mirror(sides)]


def _extra(animal: Animal, head: Point, root: Point, back: float) -> list[Solid]:
    x, _, z = head
    size, paint = animal.head, animal.paint
    if animal.extra == "trunk":
        joints = [
            (x + size * 0.8, 0.0, z - size * 0.3),
            (x + size * 1.55, 0.0, z - size * 1.3),
            (x + size * 1.7, 0.0, z - size * 2.3),
            (x + size * 2.2, 0.0, z - size * 2.8),
        ]
        trunk = [cone(joints[k], joints[k + 1], 0.1 - 0.022 * k, 0.078 - 0.022 * k, paint) for k in range(3)]
        tusks = [
            cone(
                (x + size * 0.7, size * 0.5, z - size * 0.6),
                (x + size * 1.9, size * 0.6, z - size * 1.0),
                0.04,
                0.01,
                0.95,
            )
        ]
        return [*trunk, *mirror(tusks)]
    if animal.extra == "horns":
        return mirror(
            [cone((x - size * 0.3, size * 0.45, z + size * 0.6), (x, size * 1.5, z + size * 1.3), 0.045, 0.01, 0.9)]
        )
    if animal.extra == "antlers":
        fork = (x - size * 0.5, size * 1.1, z + size * 2.0)
        return mirror(
            [
                cone((x - size * 0.2, size * 0.4, z + size * 0.6), fork, 0.028, 0.022, 0.4),
                cone(fork, (x - size * 1.3, size * 1.5, z + size * 3.0), 0.022, 0.012, 0.4),
                cone(fork, (x + size * 0.4, size * 1.4, z + size * 2.8), 0.022, 0.012, 0.4),
            ]
        )
    if animal.extra == "hump":
        return [
            ellipsoid(
                (0.0, 0.0, back + animal.depth * 0.9),
                (animal.body * 0.2, animal.width * 0.7, animal.depth * 0.8),
                paint,
            )
        ]
    if animal.extra == "mane":
        top = (x - size * 0.7, 0.0, z + size * 0.5)
        return [cone((root[0] - animal.neck_width, 0.0, root[2] + animal.neck_width), top, 0.06, 0.05, paint * 0.5)]
    return []
