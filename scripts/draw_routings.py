"""Draw docs/images/routing-NAME.png: what each routing makes of the parts of a house and a boat, step by step."""

from pathlib import Path

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon

from torchcaps.lab.explanation.parts_and_wholes import (
    KINDS,
    SCENES,
    WHOLES,
    PartsScene,
    Placement,
    placement_of,
    pose_of,
    scene_votes,
    whole_parts,
)
from torchcaps.losses import NLLLoss
from torchcaps.routing import ROUTINGS, Routing, Trace, VoteShape

TARGET = Path(__file__).resolve().parent.parent / "docs" / "images"
SCENE = SCENES[2]
LEARNING_STEPS, LEARNING_BATCH = 200, 16
COLORS = dict(zip(WHOLES, ("#1b9e77", "#7570b3", "#d95f02"), strict=True))


def add_shape(panel: Axes, kind: str, place: Placement, **style: object) -> None:
    corners = [place.holding(Placement(x, y)) for x, y in KINDS[kind]]
    panel.add_patch(Polygon([(corner.x, corner.y) for corner in corners], closed=True, **style))  # pyright: ignore[reportArgumentType]


def draw_step(panel: Axes, coupling: torch.Tensor, pose: torch.Tensor) -> None:
    """Parts in the color of the whole that they go to, the surer the stronger; wholes where the routing sees them, the
    more of the parts they have won the stronger."""
    for part, shares in zip(SCENE.parts, coupling.tolist(), strict=True):
        best = max(range(len(WHOLES)), key=lambda column: shares[column])
        strength = min(1.0, max(0.0, (shares[best] * len(WHOLES) - 1) / (len(WHOLES) - 1)))
        add_shape(panel, part.kind, part.placement, facecolor="#e8e8e8", edgecolor="none")
        add_shape(
            panel, part.kind, part.placement, facecolor=list(COLORS.values())[best], edgecolor="none", alpha=strength
        )
    for column, whole in enumerate(WHOLES):
        won = coupling[:, column].mean().item()
        for kind, inner in WHOLES[whole].items():
            place = placement_of(pose[column]).holding(inner)
            alpha = min(1.0, 0.15 + 1.6 * won)
            add_shape(panel, kind, place, fill=False, edgecolor=COLORS[whole], linewidth=1.4, alpha=alpha)


def draw_votes(panel: Axes, whole: str, votes: torch.Tensor) -> None:
    for vote in votes:
        for kind, inner in WHOLES[whole].items():
            place = placement_of(vote).holding(inner)
            add_shape(panel, kind, place, fill=False, edgecolor=COLORS[whole], linewidth=1.0, alpha=0.5)


def learn(kind: type[Routing]) -> Routing:
    """A routing that goes by what it has learned: from the name of a whole, at random places, with weights for each
    kind of part."""
    torch.manual_seed(0)
    routing = kind(sizes=VoteShape(None, len(WHOLES), len(pose_of(Placement(0.0, 0.0))), types=len(KINDS)))
    optimizer = torch.optim.Adam(routing.parameters(), lr=0.05)
    loss = NLLLoss()
    for _ in range(LEARNING_STEPS):
        scores, labels = [], torch.randint(len(WHOLES), (LEARNING_BATCH,))
        for label in labels.tolist():
            x, y, angle = ((torch.rand(3) * 2 - 1) * torch.tensor([1.5, 0.6, 10.0])).tolist()
            votes = scene_votes(PartsScene("", whole_parts(list(WHOLES)[label], Placement(x, y, angle))))
            scores.append(routing(votes).score)
        optimizer.zero_grad()
        loss(torch.stack(scores), labels).backward()
        optimizer.step()
    return routing


@torch.no_grad()
def draw(kind: type[Routing]) -> Figure:
    """The parts, each iteration, and what the routing says about each whole. A routing without couplings moves nothing:
    the votes for each whole take the place of its iterations."""
    votes = scene_votes(SCENE)
    if kind.by_agreement:
        routing = kind.demonstrate(VoteShape(None, votes.parents, votes.pose))
    else:
        with torch.enable_grad():
            routing = learn(kind)
    trace = Trace()
    parents = routing(votes, trace=trace)
    evidence = routing.measure_evidence(parents, trace.iterations[-1].coupling).tolist()
    steps = len(trace.iterations) if kind.couples else len(WHOLES)
    figure = Figure(figsize=(2.6 * (steps + 1) + 1.6, 2.1), layout="constrained")
    *panels, bars = figure.subplots(1, steps + 2, width_ratios=[1] * (steps + 1) + [0.6])
    for panel in panels:
        panel.set(xlim=(-2.6, 2.9), ylim=(-1.7, 1.9), xticks=[], yticks=[], aspect="equal")
    panels[0].set_title("parts", fontsize=9)
    for part in SCENE.parts:
        add_shape(panels[0], part.kind, part.placement, facecolor="#bbbbbb", edgecolor="black", linewidth=0.6)
    if kind.couples:
        for number, (panel, step) in enumerate(zip(panels[1:], trace.iterations, strict=True), 1):
            draw_step(panel, step.coupling, step.pose)
            panel.set_title(f"iteration {number}" if kind.iterates else "result", fontsize=9)
    else:
        for column, (panel, whole) in enumerate(zip(panels[1:], WHOLES, strict=True)):
            draw_votes(panel, whole, votes.tensor()[:, column])
            panel.set_title(f"votes for a {whole}", fontsize=9)
    bars.barh(list(WHOLES), evidence, color=list(COLORS.values()))
    bars.invert_yaxis()
    bars.set_title(kind.evidence, fontsize=9)
    bars.tick_params(length=0, labelsize=8)
    bars.set_xticks([])
    for row, value in enumerate(evidence):
        bars.text(value, row, f" {value:.2f}", va="center", fontsize=8)
    bars.set_xlim(0, 1.45 * max(evidence))
    bars.spines[["top", "right", "bottom"]].set_visible(False)
    return figure


def main() -> None:
    matplotlib.use("agg")
    for name, kind in ROUTINGS.items():
        draw(kind).savefig(TARGET / f"routing-{name.replace('_', '-')}.png", dpi=110)


if __name__ == "__main__":
    main()
