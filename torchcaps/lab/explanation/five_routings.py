"""All five routings on the scenes of parts and wholes, with what each made of them in every iteration."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from torchcaps.lab.explanation.parts_and_wholes import WHOLES, PartsScene, Placement, placement_of, scene_votes
from torchcaps.routing import ROUTINGS, Routing, Trace, VoteShape
from torchcaps.votes import Votes


@dataclass(frozen=True)
class RoutingOutcome:
    """What one routing made of one scene."""

    routing: str
    measure: str  # what it says about each whole: this kind of number
    couplings: list[list[list[float]]]  # iteration, part, whole
    says: dict[str, float]  # after the last iteration


@dataclass(frozen=True)
class Told:
    """A scene, its votes, and what the routings made of them."""

    scene: PartsScene
    votes: list[list[Placement]]  # part, whole
    outcomes: list[RoutingOutcome]


def tell(scene: PartsScene, kinds: Sequence[type[Routing]] = tuple(ROUTINGS.values())) -> Told:
    """Run routings on a scene: all of the package, or those given."""
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
    return RoutingOutcome(kind.title, kind.evidence, couplings, dict(zip(WHOLES, evidence.tolist(), strict=True)))


def found(outcome: RoutingOutcome, number: int) -> list[str]:
    """The wholes that a routing puts first, as many as asked for."""
    first = sorted(outcome.says, key=lambda whole: -outcome.says[whole])[:number]
    return [whole for whole in WHOLES if whole in first]


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
