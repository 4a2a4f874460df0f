# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Write a routing of your own
#
# You write a routing in twenty lines, hold it to a reference in value and gradient, plant a bug and see it caught, and
# train a network with it. Nothing has to be registered. It takes about a minute.
#
# ## An idea
#
# Dynamic routing measures agreement by an inner product, so long votes count more than short ones. What if only the
# direction counted? The couplings of *cosine routing* follow the cosine of a vote and the mean of the parent, times a
# sharpness that each parent learns.
#
# ## The routing
#
# A routing is a subclass of `Routing`. It works on votes through a few primitives, so it never sees how they are made
# or how many are in memory at once: `mix(w)` is the weighted sum over children, `agreement(parent)` the inner product
# of each vote with a parent, `distance` the squared distance, `compete` the softmax over parents.

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn

import torchcaps as tc
from torchcaps.routing import Routing, Trace, VoteShape
from torchcaps.testing import check_routing
from torchcaps.votes import tensor_votes


class CosineRouting(Routing):
    title = "cosine"  # its name in figures and messages
    reads_scores = False  # the children's scores make no difference
    suited_losses = ("cross_entropy",)

    def __init__(self, num_iters=3):
        super().__init__()
        self.num_iters = num_iters

    def attach(self, shape: VoteShape):  # the layer's sizes are known: make the parameters
        super().attach(shape)
        self.sharpness = nn.Parameter(torch.full((shape.parents or 1,), 2.0))

    def forward(self, votes, score=None, *, trace: Trace | None = None):
        votes, num_iters = tensor_votes(votes), self.num_iters

        def route(block, sharpness):  # all tensors that want a gradient are arguments
            coupling = block.compete_evenly()
            for iteration in range(num_iters):
                mean = block.mix(coupling)
                parent_score = (mean.square().sum(-1) + 1e-6).log()  # a logit: long is likely
                if trace is not None:
                    trace.record(votes, coupling, mean, parent_score)
                if iteration < num_iters - 1:
                    direction = nn.functional.normalize(mean, dim=-1)
                    nothing, ones = torch.zeros_like(mean), torch.ones_like(mean)
                    length = (block.distance(nothing, ones) + 1e-6).sqrt()  # of each vote
                    coupling = block.compete(sharpness * block.agreement(direction) / length)
            return mean, parent_score

        return tc.Capsules(*votes.run(route, shared=[self.sharpness], whole=trace is not None))


# %% [markdown]
# ## Hold it to a reference
#
# Write the same again as plainly as you can, without the primitives. `check_routing` compares the two in value and
# gradient, and checks what every routing has to satisfy: the order of children does not matter, examples do not see
# each other, couplings sum to one.


# %%
def refer_cosine(votes, score, sharpness):
    coupling = torch.full(votes.shape[:-1], 1 / votes.shape[-2], dtype=votes.dtype)
    for _ in range(3):
        mean = torch.einsum("bij,bijp->bjp", coupling, votes)
        length = (votes.square().sum(-1) + 1e-6).sqrt()
        cosine = torch.einsum("bijp,bjp->bij", votes, mean / mean.norm(dim=-1, keepdim=True)) / length
        coupling = (sharpness * cosine).softmax(-1)
    return mean, (mean.square().sum(-1) + 1e-6).log()


check_routing(CosineRouting, refer_cosine)
print("cosine routing does what its reference does")

# %% [markdown]
# A test that cannot fail proves nothing. So plant a bug, the most common one in public code: a softmax over children
# instead of parents.


# %%
def refer_wrongly(votes, score, sharpness):
    coupling = torch.full(votes.shape[:-1], 1 / votes.shape[-2], dtype=votes.dtype)
    for _ in range(3):
        mean = torch.einsum("bij,bijp->bjp", coupling, votes)
        length = (votes.square().sum(-1) + 1e-6).sqrt()
        cosine = torch.einsum("bijp,bjp->bij", votes, mean / mean.norm(dim=-1, keepdim=True)) / length
        coupling = (sharpness * cosine).softmax(-2)  # over children
    return mean, (mean.square().sum(-1) + 1e-6).log()


try:
    check_routing(CosineRouting, refer_wrongly)
except AssertionError as error:
    print("caught:", str(error).splitlines()[0])
else:
    raise RuntimeError("the bug went unnoticed")

# %% [markdown]
# ## Use it
#
# The class goes wherever a name goes: into every layer, model and recipe. The parts that vote for a house or a boat
# from [parts and wholes](3-parts-and-wholes.py) show what it does with votes:

# %%
from torchcaps.lab.explanation.parts_and_wholes import SCENES, WHOLES, scene_votes

votes = scene_votes(SCENES[2])
figure, panels = plt.subplots(1, 4, figsize=(10, 2.6), layout="constrained")
for panel, sharpness in zip(panels, (1.0, 3.0, 10.0, 30.0), strict=True):
    routing = CosineRouting()
    routing.attach(VoteShape(None, votes.parents, votes.pose))
    nn.init.constant_(routing.sharpness, sharpness)
    trace = Trace()
    with torch.no_grad():
        routing(votes, trace=trace)
    panel.imshow(trace.iterations[-1].coupling.numpy(), cmap="Greys", vmin=0, vmax=1, aspect="auto")
    panel.set(title=f"sharpness {sharpness:g}", xticks=range(3), yticks=[])
    panel.set_xticklabels(WHOLES)
_ = panels[0].set_ylabel("parts")

# %% [markdown]
# The upper four parts are those of the house, the lower four those of the boat. The sharper, the clearer.
#
# And in a network:

# %%
torch.manual_seed(0)
train, test = tc.data.load("mnist_sample", "train"), tc.data.load("mnist_sample", "test")
network = nn.Sequential(
    nn.Conv2d(1, 24, 9),
    nn.ReLU(),
    tc.SquashedPrimaryCapsules(24, out_caps=4, out_pose=8, kernel_size=9, stride=2),
    tc.ClassCapsules(4, 8, 10, 16, routing=CosineRouting),
)
optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
order = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))
for rows in order[: 150 * 32].split(32):
    batch = train.batch(rows)
    loss = nn.functional.cross_entropy(network(batch.image).score, batch.label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    everything = test.batch(torch.arange(len(test)))
    correct = network(everything.image).score.argmax(-1) == everything.label
print(f"{correct.float().mean():.1%} of {len(test)} test digits")

# %% [markdown]
# ## Next
#
# - [Your own routing](../how-to/own-routing.md): all attributes, names in commands and files
# - [Votes as an operator](../fast.md): what the primitives do, and why
# - [Contributing](../../CONTRIBUTING.md#add-a-routing): a routing for the package
