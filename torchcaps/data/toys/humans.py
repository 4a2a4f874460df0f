"""Ten humans, standing, walking, waving and carrying things. Lengths are in arbitrary units."""

import math
from dataclasses import dataclass
from typing import Literal

from torchcaps.data.toys.solids import Point, Solid, ball, box, cone, dome, ellipsoid


@dataclass(frozen=True)
class Human:
    """Arms are given by degrees: raised sideways from hanging, swung forward, and bent at the elbow."""

    leg: float = 0.85
    torso: float = 0.58
    shoulder: float = 0.25
    hip: float = 0.15
    girth: float = 0.14
    head: float = 0.15
    limb: float = 0.07
    left: tuple[float, float, float] = (12.0, 10.0, 15.0)
    right: tuple[float, float, float] = (12.0, -10.0, 15.0)
    stride: float = 8.0
    stance: float = 6.0
    hat: Literal["none", "brim", "helmet", "cap", "crown"] = "none"
    holds: Literal["none", "pole", "bag", "shield", "staff"] = "none"
    skirt: float = 0.0
    paint: float = 0.6


HUMANS = (
    Human(left=(15.0, 60.0, 40.0), right=(15.0, 45.0, 70.0), hat="helmet", holds="pole", paint=0.5),
    Human(0.8, 0.55, 0.24, left=(85.0, 0.0, 5.0), right=(85.0, 0.0, 5.0), stride=0.0, stance=14.0, paint=0.66),
    Human(
        0.78,
        0.55,
        0.22,
        0.17,
        0.13,
        0.15,
        0.06,
        left=(25.0, 10.0, 50.0),
        right=(140.0, 0.0, 10.0),
        skirt=0.36,
        paint=0.62,
    ),
    Human(0.9, 0.6, 0.27, left=(20.0, 40.0, 60.0), right=(20.0, -35.0, 30.0), stride=28.0, hat="cap", paint=0.58),
    Human(left=(35.0, 20.0, 80.0), right=(150.0, 10.0, 10.0), stride=10.0, stance=10.0, hat="brim", paint=0.6),
    Human(
        0.75,
        0.62,
        0.28,
        0.2,
        0.2,
        0.16,
        0.085,
        left=(30.0, 0.0, 30.0),
        right=(30.0, 20.0, 60.0),
        hat="crown",
        holds="staff",
        paint=0.55,
    ),
    Human(
        0.88,
        0.58,
        0.26,
        left=(15.0, 55.0, 50.0),
        right=(20.0, 30.0, 80.0),
        stride=18.0,
        hat="helmet",
        holds="pole",
        paint=0.52,
    ),
    Human(
        0.8, 0.55, 0.22, 0.16, 0.13, 0.15, 0.06, left=(35.0, 5.0, 30.0), right=(35.0, 5.0, 30.0), skirt=0.4, paint=0.68
    ),
    Human(
        0.86,
        0.6,
        0.28,
        0.17,
        0.17,
        0.16,
        0.085,
        left=(95.0, 0.0, 60.0),
        right=(100.0, 0.0, 60.0),
        stride=4.0,
        stance=14.0,
        paint=0.62,
    ),
    Human(
        0.84,
        0.57,
        0.25,
        left=(20.0, 45.0, 40.0),
        right=(25.0, -40.0, 20.0),
        stride=26.0,
        hat="cap",
        holds="bag",
        paint=0.56,
    ),
)


def build_human(human: Human) -> list[Solid]:
    paint, girth, limb = human.paint, human.girth, human.limb
    leg = human.leg
    waist, neck = leg + 0.04, leg + human.torso
    parts = [
        ellipsoid((0.0, 0.0, waist), (girth * 0.95, human.hip * 1.15, 0.14), paint * 0.8),
        box(
            (0.0, 0.0, waist + human.torso * 0.42),
            (girth * 1.5, human.hip * 1.9, human.torso * 0.84),
            paint,
            taper=(1.15, human.shoulder / human.hip * 0.92),
        ),
        ellipsoid((0.0, 0.0, neck - 0.06), (girth * 0.95, human.shoulder * 1.02, 0.11), paint),
        cone((0.0, 0.0, neck - 0.02), (0.01, 0.0, neck + 0.1), 0.065, 0.06, 0.75),
        ellipsoid(
            (0.015, 0.0, neck + 0.08 + human.head * 0.95),
            (human.head * 0.92, human.head * 0.82, human.head * 1.1),
            0.75,
        ),
        ellipsoid((human.head * 0.92, 0.0, neck + 0.07 + human.head * 0.9), (0.035, 0.03, 0.04), 0.75),
    ]
    for side, forward in ((1.0, human.stride), (-1.0, -human.stride)):
        parts += _leg(human, side, forward, paint * 0.8)
    hands: list[Point] = []
    for side, pose in ((1.0, human.left), (-1.0, human.right)):
        arm, hand = _arm(human, side, pose, neck - 0.07)
        parts += arm
        hands.append(hand)
    if human.skirt:
        parts.append(cone((0.0, 0.0, leg * 0.35), (0.0, 0.0, waist + 0.1), human.skirt, human.hip * 0.9, paint))
    return [*parts, *_hat(human, neck + 0.08 + human.head * 0.95), *_held(human, hands, limb)]


def _leg(human: Human, side: float, forward: float, paint: float) -> list[Solid]:
    swing, spread, leg = math.radians(forward), math.radians(human.stance), human.leg
    hip = (0.0, side * human.hip * 0.62, leg)
    foot = (math.sin(swing) * leg, hip[1] + side * math.sin(spread) * leg * 0.8, 0.07)
    bend = max(0.0, math.sin(abs(swing))) * 0.12
    knee = ((hip[0] + foot[0]) / 2 + bend + 0.02, (hip[1] + foot[1]) / 2, (hip[2] + foot[2]) / 2)
    return [
        cone(hip, knee, human.limb * 1.4, human.limb * 1.05, paint),
        ball(knee, human.limb * 1.05, paint),
        cone(knee, foot, human.limb * 1.05, human.limb * 0.8, paint),
        ellipsoid((foot[0] + 0.06, foot[1], 0.055), (0.16, 0.075, 0.06), 0.25),
    ]


def _arm(human: Human, side: float, pose: tuple[float, float, float], height: float) -> tuple[list[Solid], Point]:
    raised, swung, bent = (math.radians(angle) for angle in pose)
    length = human.torso * 0.56

    def along(start: Point, lift: float, swing: float, reach: float) -> Point:
        # Hanging is down; lifting goes out to the side, swinging forward.
        down = math.cos(lift) * math.cos(swing)
        return (
            start[0] + math.sin(swing) * math.cos(lift) * reach,
            start[1] + side * math.sin(lift) * reach,
            start[2] - down * reach,
        )

    shoulder = (0.0, side * human.shoulder * 0.98, height)
    elbow = along(shoulder, raised, swung, length)
    # A raised arm bends further up, a hanging one forward.
    hand = (
        along(elbow, raised + bent, swung, length) if raised > 1.0 else along(elbow, raised * 0.5, swung + bent, length)
    )
    sleeve, skin = human.paint * 0.92, 0.75
    parts = [
        ball(shoulder, human.limb * 1.25, sleeve),
        cone(shoulder, elbow, human.limb * 1.1, human.limb * 0.85, sleeve),
        ball(elbow, human.limb * 0.85, sleeve),
        cone(elbow, hand, human.limb * 0.85, human.limb * 0.65, sleeve),
        ball(hand, human.limb * 1.05, skin),
    ]
    return parts, hand


def _hat(human: Human, middle: float) -> list[Solid]:
    size, paint = human.head, human.paint * 0.6
    if human.hat == "brim":
        brim = cone((0.0, 0.0, middle + size * 0.42), (0.0, 0.0, middle + size * 0.52), size * 1.9, size * 1.8, paint)
        return [brim, cone((0.0, 0.0, middle + size * 0.45), (0.0, 0.0, middle + size * 1.5), size, size * 0.75, paint)]
    if human.hat == "helmet":
        return [dome((0.0, 0.0, middle + size * 0.2), (size * 1.25, size * 1.15, size * 1.15), paint)]
    if human.hat == "cap":
        peak = box((size * 1.0, 0.0, middle + size * 0.4), (size * 1.0, size * 1.2, 0.03), paint)
        return [dome((0.0, 0.0, middle + size * 0.3), (size * 1.05, size * 0.95, size * 0.9), paint), peak]
    if human.hat == "crown":
        return [cone((0.0, 0.0, middle + size * 0.5), (0.0, 0.0, middle + size * 1.7), size * 0.9, size * 1.05, 0.9)]
    return []


def _held(human: Human, hands: list[Point], limb: float) -> list[Solid]:
    left, right = hands
    if human.holds == "pole":
        # A rifle or a spear, held across in the right hand.
        x, y, z = right
        return [cone((x - 0.35, y + 0.02, z - 0.16), (x + 0.75, y + 0.12, z + 0.3), limb * 0.55, limb * 0.35, 0.25)]
    if human.holds == "staff":
        x, y, _ = right
        return [
            cone((x, y, 0.0), (x, y, human.leg + human.torso + 0.5), limb * 0.5, limb * 0.5, 0.3),
            ball((x, y, human.leg + human.torso + 0.52), limb * 1.2, 0.9),
        ]
    if human.holds == "bag":
        return [
            box(
                (-human.girth - 0.14, 0.0, human.leg + human.torso * 0.55),
                (0.24, 0.36, 0.46),
                human.paint * 0.6,
                taper=(0.8, 0.85),
            )
        ]
    if human.holds == "shield":
        x, y, z = left
        return [cone((x + 0.02, y, z), (x + 0.06, y, z), 0.26, 0.26, 0.8)]
    return []
