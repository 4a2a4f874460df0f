"""All five routings on the scenes of parts and wholes, with what each made of them in every iteration."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from torchcaps import routing
from torchcaps.explain.parts_and_wholes import WHOLES, Placement, Scene, placement_of, scene_votes
from torchcaps.routing import Trace
from torchcaps.votes import Votes

ITERATIONS = 3


@dataclass(frozen=True)
class Outcome:
    """What one routing made of one scene."""

    routing: str
    measure: str  # what it says about each whole: this kind of number
    couplings: list[list[list[float]]]  # iteration, part, whole
    says: dict[str, float]  # after the last iteration


@dataclass(frozen=True)
class Told:
    """A scene, its votes, and what the routings made of them."""

    scene: Scene
    votes: list[list[Placement]]  # part, whole
    outcomes: list[Outcome]


def _dynamic(votes: Votes, trace: Trace) -> Tensor:
    return routing.dynamic_routing(votes, num_iters=ITERATIONS, trace=trace).presence


def _em(votes: Votes, trace: Trace) -> Tensor:
    # Nothing is trained here, so the betas are set by hand: a part that fits is worth about 11, a whole costs 20.
    return routing.em_routing(
        votes,
        None,
        beta_cost=torch.full((votes.parents,), 0.7),
        beta_active=torch.full((votes.parents,), -20.0),
        num_iters=ITERATIONS,
        inverse_temperature=(0.1, 0.2, 0.3),
        eps=0.02,
        trace=trace,
    ).presence


def _heinsen(votes: Votes, trace: Trace) -> Tensor:
    # A part that is used is worth one, a part that is ignored costs a half.
    use, ignore = torch.full((1, votes.parents), 1.0), torch.full((1, votes.parents), 0.5)
    return routing.heinsen_routing(
        votes, None, beta_use=use, beta_ignore=ignore, num_iters=ITERATIONS, eps=0.01, trace=trace
    ).presence


def _inverted_attention(votes: Votes, trace: Trace) -> Tensor:
    poses = None
    for _ in range(ITERATIONS):
        norm = partial(F.layer_norm, normalized_shape=(votes.pose,))
        poses = routing.inverted_attention_step(votes, poses, norm=norm, trace=trace)
    # There is no score: what can be told is how much of the parts' attention each whole has won.
    return trace.iterations[-1].coupling.mean(0)


def _fm(votes: Votes, trace: Trace) -> Tensor:
    score = routing.fm_agreement(votes, trace=trace).score
    assert score is not None
    return score


ROUTINGS: dict[str, tuple[str, Callable[[Votes, Trace], Tensor]]] = {
    "dynamic": ("presence", _dynamic),
    "EM": ("presence", _em),
    "Heinsen": ("presence", _heinsen),
    "inverted attention": ("attention won", _inverted_attention),
    "FM": ("agreement", _fm),
}


def tell(scene: Scene) -> Told:
    """Run all routings on a scene."""
    votes = scene_votes(scene)
    outcomes = []
    for name, (measure, run) in ROUTINGS.items():
        trace = Trace()
        says = run(votes, trace)
        couplings = [iteration.coupling.tolist() for iteration in trace.iterations]
        outcomes.append(Outcome(name, measure, couplings, dict(zip(WHOLES, says.tolist(), strict=True))))
    placements = [[placement_of(vote) for vote in part] for part in votes.tensor()]
    return Told(scene, placements, outcomes)


def found(outcome: Outcome, number: int) -> list[str]:
    """The wholes that a routing puts first, as many as asked for."""
    first = sorted(outcome.says, key=lambda whole: -outcome.says[whole])[:number]
    return [whole for whole in WHOLES if whole in first]


def part_names(scene: Scene) -> list[str]:
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
