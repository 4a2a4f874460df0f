"""Ten cars: saloons, estates, beetles, open cars and a racer. Lengths are in arbitrary units."""

from dataclasses import dataclass
from typing import Literal

from torchcaps.data.toys.solids import DARK, GLASS, Solid, blade, box, cone, dome, ellipsoid, mirror, wheel


@dataclass(frozen=True)
class Car:
    """A low body with a glass house on it; ``house`` is where that begins and ends, 0 at the back to 1 in front."""

    style: Literal["saloon", "open", "round", "racer"] = "saloon"
    length: float = 2.0
    width: float = 0.86
    body: float = 0.3
    house: tuple[float, float] = (0.14, 0.68)
    house_height: float = 0.3
    house_taper: float = 0.62
    tyre: float = 0.18
    lean: float = -0.06
    paint: float = 0.62


CARS = (
    Car(),
    Car("saloon", 1.8, 0.84, 0.32, (0.02, 0.68), 0.32, 0.74, paint=0.7),
    Car("round", 1.75, 0.84, 0.28, (0.1, 0.75), 0.36, paint=0.55),
    Car("open", 1.9, 0.86, 0.32, (0.25, 0.6), 0.18, paint=0.66),
    Car("saloon", 2.1, 0.88, 0.27, (0.22, 0.66), 0.24, 0.5, 0.18, -0.1, 0.5),
    Car("racer", 2.1, 0.9, 0.2, (0.3, 0.5), 0.16, paint=0.6),
    Car("saloon", 2.2, 0.86, 0.3, (0.0, 0.66), 0.3, 0.82, paint=0.56),
    Car("round", 1.85, 0.88, 0.3, (0.08, 0.72), 0.34, tyre=0.19, paint=0.68),
    Car("open", 1.8, 0.82, 0.3, (0.22, 0.58), 0.2, tyre=0.19, paint=0.58),
    Car("saloon", 1.9, 0.88, 0.36, (0.04, 0.7), 0.36, 0.78, 0.22, -0.03, 0.64),
)


def build_car(car: Car) -> list[Solid]:
    if car.style == "racer":
        return _racer(car)
    length, width, floor, paint = car.length, car.width, car.tyre * 0.7, car.paint
    top = floor + car.body
    first, last = (car.house[0] - 0.5) * length, (car.house[1] - 0.5) * length
    parts: list[Solid] = []
    if car.style == "round":
        parts += [
            dome((0.0, 0.0, floor), (length * 0.5, width * 0.44, car.body * 1.35), paint),
            dome(
                ((first + last) / 2, 0.0, top - 0.08),
                ((last - first) / 2, width * 0.38, car.house_height + 0.08),
                GLASS,
            ),
            dome(
                ((first + last) / 2 - 0.02, 0.0, top + car.house_height * 0.55),
                ((last - first) * 0.36, width * 0.31, car.house_height * 0.5),
                paint,
            ),
        ]
        fenders = [
            ellipsoid((x, width * 0.4, car.tyre * 1.15), (car.tyre * 1.6, 0.13, car.tyre * 1.15), paint)
            for x in (-0.31 * length, 0.31 * length)
        ]
        parts += mirror(fenders)
    else:
        parts += [
            box((0.0, 0.0, floor + car.body * 0.32), (length, width, car.body * 0.64), paint),
            box(
                (0.0, 0.0, floor + car.body * 0.82),
                (length * 0.985, width * 0.98, car.body * 0.36),
                paint,
                taper=(0.95, 0.93),
            ),
        ]
    if car.style == "saloon":
        house = last - first
        parts += [
            box(
                ((first + last) / 2, 0.0, top + car.house_height * 0.44),
                (house, width * 0.9, car.house_height * 0.88),
                GLASS,
                taper=(car.house_taper, 0.82),
                lean=car.lean,
            ),
            box(
                ((first + last) / 2 + car.lean * 0.94, 0.0, top + car.house_height * 0.94),
                (house * (car.house_taper + 0.02), width * 0.76, car.house_height * 0.14),
                paint,
            ),
        ]
    if car.style == "open":
        parts += [
            box(((first + last) / 2, 0.0, top - 0.01), (last - first, width * 0.76, 0.05), DARK),
            blade(
                (last, 0.0, top - 0.03),
                (last - 0.12, 0.0, top + car.house_height),
                (0.0, width * 0.84, 0.0),
                (0.05, 0.0, 0.0),
                GLASS,
                taper=0.9,
            ),
            *mirror(
                [
                    box(
                        ((first + last) / 2 - 0.08, width * 0.19, top + 0.06),
                        (0.1, width * 0.3, 0.26),
                        0.4,
                        lean=-0.05,
                    )
                ]
            ),
        ]
    front = length / 2
    parts += [
        box((front, 0.0, floor + 0.07), (0.07, width * 0.96, 0.09), 0.4),
        box((-front, 0.0, floor + 0.07), (0.07, width * 0.96, 0.09), 0.4),
    ]
    lights = [
        cone(
            (front - 0.04, width * 0.33, floor + car.body * 0.62),
            (front + 0.02, width * 0.33, floor + car.body * 0.62),
            0.07,
            0.07,
            0.95,
        )
    ]
    return [*parts, *mirror([*lights, *_car_wheels(car, width / 2 - 0.04, 0.31)])]


def _car_wheels(car: Car, side: float, at: float) -> list[Solid]:
    places = (-at * car.length, at * car.length)
    tyres = [wheel((x, side, car.tyre), car.tyre, 0.14, DARK) for x in places]
    return [*tyres, *(wheel((x, side + 0.05, car.tyre), car.tyre * 0.55, 0.07, 0.6) for x in places)]


def _racer(car: Car) -> list[Solid]:
    length, paint, floor = car.length, car.paint, car.tyre * 0.55
    front = length / 2
    parts = [
        cone((-front * 0.55, 0.0, floor + 0.14), (front * 0.95, 0.0, floor + 0.08), 0.2, 0.06, paint),
        box((-0.05 * length, 0.0, floor + 0.1), (length * 0.42, car.width * 0.52, 0.18), paint, taper=(0.9, 0.8)),
        ellipsoid((-front * 0.35, 0.0, floor + 0.24), (0.34, 0.13, 0.16), paint),
        ellipsoid((0.02, 0.0, floor + 0.28), (0.09, 0.09, 0.11), 0.85),
        box((front * 0.93, 0.0, floor + 0.04), (0.2, car.width * 0.9, 0.04), paint),
        box((-front * 0.92, 0.0, floor + 0.42), (0.22, car.width * 0.82, 0.04), paint),
    ]
    supports = [box((-front * 0.92, car.width * 0.4, floor + 0.28), (0.24, 0.035, 0.3), paint)]
    tyres = [
        wheel((x, car.width / 2 - 0.05, radius), radius, 0.18, DARK)
        for x, radius in ((-0.34 * length, car.tyre * 1.15), (0.33 * length, car.tyre))
    ]
    rods = [
        cone((x, 0.0, car.tyre), (x, car.width / 2, car.tyre), 0.025, 0.025, DARK)
        for x in (-0.34 * length, 0.33 * length)
    ]
    return [*parts, *mirror([*supports, *tyres, *rods])]
