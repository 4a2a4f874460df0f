"""A small world of parts and wholes, made by hand: simple shapes that vote for what they may be parts of.

A thing has a place ``x, y`` and an angle. As a pose, each of the three is the hand of a clock, and a hand is three
numbers: how far it points towards twelve, four and eight o'clock. One turn of the hands for x and y is the width of the
world, so the world's right edge is its left edge.

Clocks are chosen for what they do to votes. Moving a thing turns its hands, which is linear: a part's vote is its pose
times a matrix, as in any capsule layer. All poses have one length, so an inner product of two says how near they are.
The three numbers of a hand add up to zero, so that layer normalization has nothing to shift.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import atan2, cos, degrees, pi, radians, sin
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from torchcaps.routing import ROUTINGS, Routing, Trace, VoteShape
from torchcaps.votes import Votes, dense_votes

WIDTH = 6.0  # of the world: x and y run from -3 to 3
HANDS = 3  # x, y, angle
NUMBERS = 3  # of one hand

Outline = tuple[tuple[float, float], ...]

# What the parts look like, around their own middle.
KINDS: dict[str, Outline] = {
    "square": ((-0.42, -0.42), (0.42, -0.42), (0.42, 0.42), (-0.42, 0.42)),
    "triangle": ((-0.6, -0.42), (0.6, -0.42), (0.0, 0.42)),
    "bar": ((-0.13, -1.0), (0.13, -1.0), (0.13, 1.0), (-0.13, 1.0)),
    "flag": ((-0.3, -0.26), (0.38, 0.0), (-0.3, 0.26)),
}


@dataclass(frozen=True)
class Placement:
    """Where a thing is and how it is turned, in degrees to the left."""

    x: float
    y: float
    angle: float = 0.0

    def holding(self, inner: "Placement") -> "Placement":
        """Where a thing is whose placement is given as seen from this one."""
        c, s = cos(radians(self.angle)), sin(radians(self.angle))
        return Placement(
            self.x + c * inner.x - s * inner.y, self.y + s * inner.x + c * inner.y, self.angle + inner.angle
        )

    def turns(self) -> tuple[float, float, float]:
        """The angles of the three hands."""
        return 2 * pi * self.x / WIDTH, 2 * pi * self.y / WIDTH, radians(self.angle)


# What the wholes are made of: where each kind of part sits in each of them.
WHOLES: dict[str, dict[str, Placement]] = {
    "house": {
        "square": Placement(-0.35, -0.58),
        "triangle": Placement(-0.35, 0.26),
        "bar": Placement(0.75, 0.0),
        "flag": Placement(1.18, 0.7),
    },
    "boat": {
        "square": Placement(-0.5, -0.2),
        "triangle": Placement(0.42, -0.2),
        "bar": Placement(0.0, -0.75, 90.0),
        "flag": Placement(-0.54, 0.48, 180.0),
    },
    "rocket": {
        "square": Placement(0.0, -1.2, 45.0),
        "triangle": Placement(0.0, 1.3),
        "bar": Placement(0.0, 0.1),
        "flag": Placement(0.43, -0.45, -90.0),
    },
}


@dataclass(frozen=True)
class Part:
    kind: str
    placement: Placement
    whole: str | None  # what it is really a part of; nobody tells the routings


@dataclass(frozen=True)
class PartsScene:
    title: str
    parts: tuple[Part, ...]

    @property
    def wholes(self) -> tuple[str, ...]:
        """What is really there."""
        return tuple(whole for whole in WHOLES if any(part.whole == whole for part in self.parts))


def whole_parts(name: str, place: Placement) -> tuple[Part, ...]:
    """The parts of a whole at a place."""
    return tuple(Part(kind, place.holding(inner), name) for kind, inner in WHOLES[name].items())


# The wholes are tilted, which the transformations from parts to wholes know nothing of: votes agree, yet not exactly.
SCENES = (
    PartsScene(
        "a house and a stray bar",
        (*whole_parts("house", Placement(0.8, 0.2, 8.0)), Part("bar", Placement(-1.7, -0.3, 50.0), None)),
    ),
    PartsScene(
        "a boat and a stray triangle",
        (*whole_parts("boat", Placement(-0.8, 0.1, -8.0)), Part("triangle", Placement(1.6, -0.6, 130.0), None)),
    ),
    PartsScene(
        "a house and a boat",
        (*whole_parts("house", Placement(1.1, 0.4, 4.0)), *whole_parts("boat", Placement(-0.7, -0.3, -6.0))),
    ),
)


def pose_of(placement: Placement) -> Float[Tensor, "d"]:
    """The three hands as nine numbers."""
    return torch.tensor([cos(turn - _clock(number)) for turn in placement.turns() for number in range(NUMBERS)])


def placement_of(pose: Float[Tensor, "d"]) -> Placement:
    """Where the hands of a pose point. Of hands that are a mixture of several, the direction counts."""
    turns = []
    for hand in pose.reshape(HANDS, NUMBERS).tolist():
        across = sum(value * sin(_clock(number)) for number, value in enumerate(hand))
        along = sum(value * cos(_clock(number)) for number, value in enumerate(hand))
        turns.append(atan2(across, along))
    return Placement(WIDTH * turns[0] / (2 * pi), WIDTH * turns[1] / (2 * pi), degrees(turns[2]))


def part_to_whole(inner: Placement) -> Float[Tensor, "d h"]:
    """The matrix that a part's pose is multiplied with to give its whole's: all hands are turned back by where the part
    sits in the whole."""
    return torch.block_diag(
        *(
            torch.tensor(
                [[2 / 3 * cos(turn - _clock(number - other)) for other in range(NUMBERS)] for number in range(NUMBERS)]
            )
            for turn in inner.turns()
        )
    )


def scene_votes(scene: PartsScene) -> Votes:
    """What every part of the scene says about every whole: ``(i, j, 9)``."""
    pose = torch.stack([pose_of(part.placement) for part in scene.parts])
    weight = torch.stack(
        [torch.stack([part_to_whole(whole[part.kind]) for whole in WHOLES.values()]) for part in scene.parts]
    )
    return dense_votes(pose, weight)


def _clock(number: int) -> float:
    """The direction of twelve, four and eight o'clock."""
    return 2 * pi * number / NUMBERS


@dataclass(frozen=True)
class RoutingOutcome:
    """What one routing made of one scene."""

    routing: str
    couples: bool  # whether parts are shared out at all
    measure: str  # what it says about each whole: this kind of number
    couplings: list[list[list[float]]]  # iteration, part, whole
    says: dict[str, float]  # after the last iteration


@dataclass(frozen=True)
class Told:
    """A scene, its votes, and what the routings made of them."""

    scene: PartsScene
    votes: list[list[Placement]]  # part, whole
    outcomes: list[RoutingOutcome]


AGREEING = tuple(kind for kind in ROUTINGS.values() if kind.by_agreement)
"""The routings that need no training to find what agrees."""


def tell(scene: PartsScene, kinds: Sequence[type[Routing]] = AGREEING) -> Told:
    """Run routings on a scene: those of the package that go by agreement, or those given."""
    votes = scene_votes(scene)
    placements = [[placement_of(vote) for vote in part] for part in votes.tensor()]
    return Told(scene, placements, [_run(kind, votes) for kind in kinds])


@torch.no_grad()
def _run(kind: type[Routing], votes: Votes) -> RoutingOutcome:
    routing = kind.demonstrate(VoteShape(None, votes.parents, votes.pose))
    trace = Trace()
    parents = routing(votes, trace=trace)
    evidence = routing.measure_evidence(parents, trace.iterations[-1].coupling)
    couplings = [iteration.coupling.tolist() for iteration in trace.iterations]
    says = dict(zip(WHOLES, evidence.tolist(), strict=True))
    return RoutingOutcome(kind.title, kind.couples, kind.evidence, couplings, says)


def rank_wholes(outcome: RoutingOutcome, number: int) -> list[str]:
    """The wholes that a routing puts first, as many as asked for."""
    first = sorted(outcome.says, key=lambda whole: -outcome.says[whole])[:number]
    return [whole for whole in WHOLES if whole in first]


def few_at_a_time(outcomes: Sequence[RoutingOutcome], most: int) -> list[Sequence[RoutingOutcome]]:
    """Rows of at most so many routings, as even as can be."""
    rows = -(-len(outcomes) // most)
    ends = [round(len(outcomes) * row / rows) for row in range(rows + 1)]
    return [outcomes[start:end] for start, end in pairwise(ends)]


def part_names(scene: PartsScene) -> list[str]:
    return [f"{number} {part.kind}" for number, part in enumerate(scene.parts, 1)]


def as_numbers(told: list[Told]) -> dict[str, Any]:
    """Everything that the picture shows, as plain numbers."""
    return {
        "wholes": {name: {kind: asdict(place) for kind, place in parts.items()} for name, parts in WHOLES.items()},
        "scenes": [
            {
                "title": each.scene.title,
                "parts": [asdict(part) for part in each.scene.parts],
                "votes": [
                    {whole: asdict(vote) for whole, vote in zip(WHOLES, votes, strict=True)} for votes in each.votes
                ],
                "routings": [asdict(outcome) for outcome in each.outcomes],
            }
            for each in told
        ],
    }
