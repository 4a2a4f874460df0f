# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Your first capsule layer
#
# You put a capsule layer on top of a small convolutional network, train it on digits in a plain PyTorch loop, and look
# inside: which parts of an image voted for which digit. Then you exchange the routing. It takes about a minute.
#
# ## Data
#
# A sample of MNIST ships with the package, so there is nothing to download.

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn

import torchcaps as tc

torch.manual_seed(0)
train, test = tc.data.load("mnist_sample", "train"), tc.data.load("mnist_sample", "test")
print(len(train), "digits for training,", len(test), "for testing, of the classes", *train.classes)

# %% [markdown]
# ## Network
#
# A convolution finds strokes. Primary capsules turn them into 6 × 6 × 4 parts, each with a pose of 8 numbers. Each part
# votes for the pose of each of ten digits, and the routing decides which votes count.


# %%
class Network(nn.Module):
    def __init__(self, routing):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 32, 9), nn.ReLU())
        self.parts = tc.SquashedPrimaryCapsules(32, out_caps=4, out_pose=8, kernel_size=9, stride=2)
        self.digits = tc.DenseCapsules(6 * 6 * 4, 8, 10, 16, routing=routing)

    def forward(self, images):
        parts = tc.flatten_grid(self.parts(self.stem(images)))
        return self.digits(parts)


network = Network("dynamic")
network

# %% [markdown]
# What comes out are capsules: a pose for each digit, and a score, the logit of whether the digit is there.

# %%
capsules = network(train.batch(torch.arange(4)).image)
capsules.pose.shape, capsules.score.shape, capsules.presence.shape

# %% [markdown]
# ## Training
#
# An ordinary loop. The margin loss is Sabour's: the presence of the right digit should reach 0.9, that of the others
# should stay below 0.1. `nn.functional.cross_entropy(capsules.score, labels)` works as well.


# %%
def fit(network, loss_function, steps=150, batch_size=32):
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))
    losses = []
    for step in range(steps):
        batch = train.batch(order[step * batch_size : (step + 1) * batch_size])
        loss = loss_function(network(batch.image).score, batch.label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def measure_accuracy(network):
    batch = test.batch(torch.arange(len(test)))
    return (network(batch.image).score.argmax(-1) == batch.label).float().mean().item()


losses = fit(network, tc.losses.MarginLoss())
print(f"{measure_accuracy(network):.1%} of {len(test)} test digits")

# %% tags=["hide-input"]
figure, axes = plt.subplots(figsize=(7, 2.6), layout="constrained")
axes.plot(losses, linewidth=1)
axes.set(xlabel="step", ylabel="margin loss", ylim=(0, None))
axes.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# ## Look inside
#
# A `Trace` collects what each iteration of a routing comes to. The couplings say how much of each part goes to each
# digit. At first they are equal. Then they follow the agreement.

# %%
batch = test.batch(torch.arange(1))
with torch.no_grad():
    parts = tc.flatten_grid(network.parts(network.stem(batch.image)))
    trace = tc.routing.Trace()
    network.digits(parts, trace=trace)
couplings = [step.coupling[0] for step in trace.iterations]  # for each iteration: parts, digits
figure, panels = plt.subplots(1, 4, figsize=(9, 2.4), layout="constrained", width_ratios=[1, 1.6, 1.6, 1.6])
panels[0].imshow(batch.image[0, 0].numpy(), cmap="gray_r")
panels[0].set_axis_off()
for number, (panel, coupling) in enumerate(zip(panels[1:], couplings, strict=True), 1):
    colors = ["#d95f02" if digit == batch.label else "#7f7f7f" for digit in range(10)]
    panel.bar(range(10), coupling.sum(0).numpy(), color=colors)
    panel.set(title=f"iteration {number}", xticks=range(10), xlabel="digit", ylim=(0, 40))
    panel.spines[["top", "right"]].set_visible(False)
_ = panels[1].set_ylabel("parts that it won")

# %% [markdown]
# `tc.lab.explain` draws such pictures for any module with capsule layers. Here it shows where in the image the parts of
# the winning digit are.

# %%
images = test.batch(torch.arange(3))
tc.lab.explain(network, images.image, images.label, test.classes, topics=["couplings"]).figures[0].figure

# %% [markdown]
# ## Another routing
#
# Every routing fits every layer: change the name. Each learns best from a loss that suits it, and says from which.

# %%
print(tc.routing.ROUTINGS["em"].suited_losses)
torch.manual_seed(0)
network = Network("em")
fit(network, tc.losses.CrossEntropyLoss())
print(f"{measure_accuracy(network):.1%} of {len(test)} test digits with EM routing")

# %% [markdown]
# One training says little about which routing is better: another seed changes the number too.
# [Compare routings fairly](6-compare-fairly.py) shows by how much.

# %% [markdown]
# ## Next
#
# - [Parts and wholes](3-parts-and-wholes.py): what routing does, on an example that you can follow by hand
# - [Train on a folder of images](2-folder-of-images.py): the same with the command line, a report and your own images
# - [Five minutes](../start.md): install, and the model that ships with the package
