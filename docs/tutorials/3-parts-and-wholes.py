# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Parts and wholes
#
# You see what routing is for. Four simple shapes may be the parts of a house, a boat or a rocket. Each shape says where
# each of the three would be if it were a part of it: these are its votes. You watch five routings find out which votes
# agree, step by step, and which shape belongs to what. It takes a few seconds, and no network is trained.
#
# ## Scene
#
# A house and a boat stand side by side. Nobody tells the routings which shape belongs to which.

# %%
import matplotlib.pyplot as plt
import torch
from matplotlib.patches import Polygon

import torchcaps as tc
from torchcaps.lab.explanation.parts_and_wholes import KINDS, SCENES, WHOLES, Placement, placement_of, scene_votes

scene = SCENES[2]
print(scene.title + ":", ", ".join(f"{number} {part.kind}" for number, part in enumerate(scene.parts, 1)))

# %% tags=["hide-input"]
COLORS = {"house": "#1b9e77", "boat": "#7570b3", "rocket": "#d95f02"}


def draw_shape(panel, kind, place, **style):
    corners = [place.holding(Placement(x, y)) for x, y in KINDS[kind]]
    panel.add_patch(Polygon([(corner.x, corner.y) for corner in corners], closed=True, **style))


def draw_whole(panel, whole, place, **style):
    for kind, inner in WHOLES[whole].items():
        draw_shape(panel, kind, place.holding(inner), fill=False, **style)


def open_world(panel, title):
    panel.set(xlim=(-3, 3), ylim=(-2, 2), xticks=[], yticks=[], aspect="equal", title=title)


figure, panel = plt.subplots(figsize=(5, 3.2), layout="constrained")
open_world(panel, scene.title)
for number, part in enumerate(scene.parts, 1):
    draw_shape(panel, part.kind, part.placement, facecolor="#cccccc", edgecolor="black")
    panel.text(part.placement.x, part.placement.y, number, ha="center", va="center")

# %% [markdown]
# ## Votes
#
# A thing has a place and an angle; as a pose, these are nine numbers. A part's vote for a whole is its pose times a
# matrix, as in any capsule layer. Here the matrices are made by hand: they say where the part sits in the whole.

# %%
votes = scene_votes(scene)
votes.tensor().shape  # parts, wholes, numbers of a pose

# %% tags=["hide-input"]
figure, panels = plt.subplots(1, 3, figsize=(10, 2.6), layout="constrained")
for column, (panel, whole) in enumerate(zip(panels, WHOLES, strict=True)):
    open_world(panel, f"votes for a {whole}")
    for vote in votes.tensor():
        draw_whole(panel, whole, placement_of(vote[column]), edgecolor=COLORS[whole], alpha=0.5)

# %% [markdown]
# Eight parts, so eight houses, eight boats, eight rockets. Four of the houses are nearly the same: the votes of the
# four parts that really belong to the house. The same is true of the boats. No two rockets agree.
#
# ## One routing, step by step
#
# Dynamic routing starts with equal couplings: a third of each part goes to each whole. Then it repeats two lines. A
# whole is the mean of the votes that it has won, and a part moves towards the whole that its vote agrees with.

# %%
logits = torch.zeros(len(scene.parts), len(WHOLES))
for iteration in range(1, 4):
    coupling = logits.softmax(-1)  # over wholes: parents compete for each part
    wholes = tc.squash(torch.einsum("ij,ijp->jp", coupling, votes.tensor()))
    logits = logits + torch.einsum("ijp,jp->ij", votes.tensor(), wholes)
    shares = [f"{whole} {share:.2f}" for whole, share in zip(WHOLES, coupling[0], strict=True)]
    print(f"iteration {iteration}: part 1, the square of the house, goes to", ", ".join(shares))

# %% [markdown]
# This is the whole algorithm. The package's routing gives the same couplings, and a `Trace` shows them.

# %%
trace = tc.routing.Trace()
parents = tc.routing.dynamic_routing(votes, trace=trace)
torch.testing.assert_close(trace.iterations[-1].coupling, coupling)
{whole: round(presence.item(), 2) for whole, presence in zip(WHOLES, parents.presence, strict=True)}

# %% [markdown]
# ## Five routings
#
# Each picture shows where a routing sees the three wholes in an iteration. Lines are stronger where a whole has won
# more of the parts, and each part has the color of the whole that it goes to: the surer, the stronger.


# %% tags=["hide-input"]
def draw_iteration(panel, coupling, pose, title):
    open_world(panel, title)
    for part, shares in zip(scene.parts, coupling.tolist(), strict=True):
        best = max(range(len(WHOLES)), key=lambda column: shares[column])
        strength = 1.5 * (shares[best] - 1 / len(WHOLES))  # 0 for equal couplings, 1 for a single whole
        color = COLORS[list(WHOLES)[best]]
        draw_shape(panel, part.kind, part.placement, facecolor="#eeeeee", edgecolor="none")
        draw_shape(panel, part.kind, part.placement, facecolor=color, edgecolor="none", alpha=min(1, max(0, strength)))
    for column, whole in enumerate(WHOLES):
        won = coupling[:, column].sum().item() / len(scene.parts)
        draw_whole(panel, whole, placement_of(pose[column]), edgecolor=COLORS[whole], alpha=min(1, 0.15 + 1.5 * won))


def watch(kind):
    routing = kind.demonstrate(tc.routing.VoteShape(None, votes.parents, votes.pose))
    trace = tc.routing.Trace()
    with torch.no_grad():
        parents = routing(votes, trace=trace)
    _, panels = plt.subplots(1, 3, figsize=(10, 2.4), layout="constrained")
    for panel in panels:
        panel.set_axis_off()
    for number, (panel, step) in enumerate(zip(panels, trace.iterations, strict=False), 1):
        panel.set_axis_on()
        draw_iteration(panel, step.coupling, step.pose, f"{kind.title}, iteration {number}")
    evidence = routing.measure_evidence(parents, trace.iterations[-1].coupling)
    found = ", ".join(f"{whole} {value:.2f}" for whole, value in zip(WHOLES, evidence.tolist(), strict=True))
    print(f"{kind.title}: {kind.evidence} of each whole: {found}")


watch(tc.routing.ROUTINGS["dynamic"])

# %% [markdown]
# Dynamic routing measures agreement by an inner product. It moves little in each step, and the rocket keeps a share.

# %%
watch(tc.routing.ROUTINGS["em"])

# %% [markdown]
# EM routing fits a Gaussian to the votes for each whole. Votes that agree make it narrow, and a narrow Gaussian takes
# everything that lies in it: in the third iteration the couplings are nearly zero or one.

# %%
watch(tc.routing.ROUTINGS["heinsen"])

# %% [markdown]
# Heinsen's routing fits Gaussians too. It counts what a whole gains by the parts that it uses and loses by those that
# it ignores.

# %%
watch(tc.routing.ROUTINGS["inverted_attention"])

# %% [markdown]
# Inverted attention lets the wholes compete for the attention of each part, and normalizes the poses. It has no scores
# of its own: in a network a classifier reads the poses.

# %%
agreement = tc.routing.fm_agreement(votes)
dict(zip(WHOLES, agreement.score.tolist(), strict=True))

# %% [markdown]
# FM agreement routes nothing, so there is nothing to watch. It multiplies every pair of votes in one pass, and what
# agrees shows in the score: the four votes for the house that lie on top of each other, and the four for the boat. Its
# poses are products of votes, not places.
#
# ## A part that belongs to nothing
#
# Couplings sum to one, so a stray part has to go somewhere. With an orphan category, dynamic routing may leave some of
# it out: more of the part that agrees with nothing than of the others.

# %%
stray = scene_votes(SCENES[0])  # a house, and a bar that lies about
for orphan in (False, True):
    trace = tc.routing.Trace()
    tc.routing.dynamic_routing(stray, orphan=orphan, trace=trace)
    coupling = trace.iterations[-1].coupling
    print(f"orphan={orphan}: of the stray bar {coupling[-1].sum():.0%} is used, of the house's parts", end=" ")
    print(", ".join(f"{share:.0%}" for share in coupling[:-1].sum(-1)))

# %% [markdown]
# ## Next
#
# - The derivations: [dynamic](../dynamic.md), [EM](../em.md), [Heinsen's](../heinsen.md),
#   [inverted attention](../inverted-attention.md), [FM](../fm.md)
# - [Write a routing of your own](4-own-routing.py)
# - `python -m torchcaps.lab.explanation.worked_example` prints all numbers of this example
