"""Ten airplanes: airliners, propeller planes, fighters, bombers and biplanes. Lengths are in arbitrary units."""

from dataclasses import dataclass
from typing import Literal

from torchcaps.data.toys.solids import DARK, GLASS, Solid, blade, cone, ellipsoid, mirror, wheel


@dataclass(frozen=True)
class Airplane:
    """Wings are given by where their root is along the fuselage (0 tail to 1 nose), their span and their sweep."""

    length: float = 2.0
    girth: float = 0.13
    span: float = 2.0
    chord: float = 0.4
    taper: float = 0.45
    sweep: float = 0.35
    wing_at: float = 0.55
    wing_height: float = -0.5  # −1 under the fuselage, 1 on top
    tail_span: float = 0.75
    fin: float = 0.4
    engines: Literal["none", "nose", "jets", "propellers", "four"] = "jets"
    second_wing: float = 0.0  # how far above the first, for biplanes
    paint: float = 0.62


AIRPLANES = (
    Airplane(span=2.1, sweep=0.5, girth=0.14),
    Airplane(1.5, 0.15, 2.1, 0.42, 0.8, 0.0, 0.62, 1.0, 0.8, 0.35, "nose", paint=0.7),
    Airplane(2.1, 0.18, 2.2, 0.46, 0.4, 0.55, engines="four", paint=0.55),
    Airplane(1.9, 0.12, 1.35, 0.75, 0.3, 0.45, 0.42, -0.2, 0.75, 0.45, "none", paint=0.5),
    Airplane(2.2, 0.12, 1.9, 0.36, 0.4, 0.45, engines="jets", paint=0.68),
    Airplane(1.45, 0.14, 1.9, 0.36, 0.95, 0.0, 0.68, -1.0, 0.75, 0.32, "nose", 0.45, 0.6),
    Airplane(1.6, 0.14, 1.9, 0.46, 0.5, 0.1, 0.6, -0.6, 0.75, 0.36, "nose", paint=0.55),
    Airplane(1.9, 0.13, 1.3, 0.95, 0.15, 0.6, 0.35, -0.2, 0.6, 0.5, "none", paint=0.62),
    Airplane(1.9, 0.16, 2.2, 0.42, 0.5, 0.15, 0.6, 0.6, 0.85, 0.45, "propellers", paint=0.5),
    Airplane(1.4, 0.15, 2.0, 0.38, 0.9, 0.05, 0.66, -1.0, 0.7, 0.34, "nose", 0.5, 0.72),
)


def build_airplane(plane: Airplane) -> list[Solid]:
    girth, paint, height = plane.girth, plane.paint, 0.3
    nose, tail = plane.length / 2, -plane.length / 2
    middle = (0.45 * nose, 0.0, height)
    parts = [
        cone(middle, (tail * 0.25, 0.0, height), girth, girth, paint),
        ellipsoid(middle, (nose * 0.55, girth, girth), paint),
        cone((tail * 0.25, 0.0, height), (tail, 0.0, height + girth * 0.6), girth, girth * 0.3, paint),
        ellipsoid((0.5 * nose, 0.0, height + girth * 0.7), (0.16, girth * 0.62, girth * 0.7), GLASS),
        blade(
            (tail * 0.84, 0.0, height),
            (tail * 1.05, 0.0, height + plane.fin + girth),
            (0.34, 0.0, 0.0),
            (0.0, 0.045, 0.0),
            paint,
            taper=0.6,
        ),
    ]
    root = tail + plane.wing_at * plane.length
    low = height + plane.wing_height * girth * 0.8
    wings = [low] if plane.second_wing == 0.0 else [low, low + plane.second_wing]
    half = plane.span / 2
    sides = [
        blade(
            (root, 0.0, z),
            (root - plane.sweep, half, z + 0.06),
            (plane.chord, 0.0, 0.0),
            (0.0, 0.0, 0.055),
            paint,
            taper=plane.taper,
        )
        for z in wings
    ]
    tail_half = plane.tail_span / 2
    sides.append(
        blade(
            (tail * 0.88, 0.0, height + girth * 0.4),
            (tail * 1.04, tail_half, height + girth * 0.5),
            (0.28, 0.0, 0.0),
            (0.0, 0.0, 0.045),
            paint,
            taper=0.6,
        )
    )
    if plane.second_wing:
        sides.append(cone((root, half * 0.65, low), (root, half * 0.65, low + plane.second_wing), 0.025, 0.025, DARK))
        sides.append(cone((root, girth * 0.6, low), (root, girth * 0.9, low + plane.second_wing), 0.02, 0.02, DARK))
    sides += _engines(plane, root, low, half)
    sides.append(cone((root, girth * 1.3, low), (root, girth * 1.5, 0.06), 0.025, 0.02, DARK))
    sides.append(wheel((root, girth * 1.5, 0.07), 0.07, 0.04, DARK))
    if plane.engines == "nose":
        parts += _propeller(nose * 1.02, 0.0, height, 0.34)
    parts += [
        cone((nose * 0.6, 0.0, height), (nose * 0.6, 0.0, 0.06), 0.022, 0.02, DARK),
        wheel((nose * 0.6, 0.0, 0.06), 0.06, 0.04, DARK),
    ]
    return [*parts, *mirror(sides)]


def _engines(plane: Airplane, root: float, low: float, half: float) -> list[Solid]:
    places = {"jets": (0.36,), "propellers": (0.36,), "four": (0.3, 0.6)}.get(plane.engines, ())
    parts = []
    for at in places:
        x = root - plane.sweep * at + plane.chord * 0.35
        y, z = half * at, low + 0.06 * at
        if plane.engines == "propellers":
            parts.append(ellipsoid((x - 0.02, y, z), (0.24, 0.075, 0.075), plane.paint))
            parts += _propeller(x + 0.22, y, z, 0.24)
        else:
            parts.append(cone((x - 0.26, y, z - 0.1), (x + 0.12, y, z - 0.1), 0.06, 0.085, plane.paint * 0.8))
    return parts


def _propeller(x: float, y: float, z: float, radius: float) -> list[Solid]:
    blades = [blade((x, y, z - radius), (x, y, z + radius), (0.03, 0.0, 0.0), (0.0, 0.055, 0.0), DARK)]
    blades.append(blade((x, y - radius, z), (x, y + radius, z), (0.03, 0.0, 0.0), (0.0, 0.0, 0.055), DARK))
    return [*blades, cone((x - 0.04, y, z), (x + 0.08, y, z), 0.06, 0.01, DARK)]
