# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Compare routings fairly
#
# You train one network with three routings, three times each, and put intervals around the results: how much of a
# difference is the routing, and how much is the seed? Then you rotate, shift and occlude the test images and ask again.
# It takes about two minutes.
#
# ## Same everything, but for the routing
#
# A comparison is fair if only one thing differs. The model `comparison` has the same backbone, votes and head for every
# routing, and parameters within two percent. All trainings see the same images in the same order for the same number of
# steps, and each routing has a loss that suits it.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch

import torchcaps as tc
from torchcaps.lab.evaluation import difference_over_seeds, over_seeds

ROUTINGS, SEEDS, STEPS = ("dynamic", "em", "fm"), (0, 1, 2), 120
NARROW = {"widths": (16, 32, 32, 32), "caps": 4}  # so that nine trainings take a minute
COLORS = dict(zip(ROUTINGS, ("#1b9e77", "#7570b3", "#d95f02"), strict=True))
train, test = tc.data.load("mnist_sample", "train"), tc.data.load("mnist_sample", "test")
everything = test.batch(torch.arange(len(test)))


def fit(routing, seed):
    torch.manual_seed(seed)
    model = tc.models.create("comparison", routing=routing, **NARROW)
    loss_function = model.suited_loss()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))
    for rows in order[: 32 * STEPS].split(32):
        batch = train.batch(rows)
        loss = loss_function(model(batch.image).logits, batch.label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval()


@torch.no_grad()
def measure_accuracy(model, images, labels):
    predicted = torch.cat([model(part).logits.argmax(-1) for part in images.split(200)])
    return (predicted == labels).float().mean().item()


for routing in ROUTINGS:
    model = tc.models.create("comparison", routing=routing, **NARROW)
    print(f"{routing}: {tc.models.count_parameters(model):,} parameters, {model.suited_loss()}")

# %% [markdown]
# ## Seeds
#
# Each routing is trained three times, from other weights and in another order. The seeds are the same for all routings.

# %%
models = {routing: [fit(routing, seed) for seed in SEEDS] for routing in ROUTINGS}
accuracies = {
    routing: [measure_accuracy(model, everything.image, everything.label) for model in models[routing]]
    for routing in ROUTINGS
}
for routing, values in accuracies.items():
    print(f"{routing:8}", "  ".join(f"{value:.1%}" for value in values))

# %% [markdown]
# ## Intervals
#
# Three seeds give a mean and an idea of how far it may be off. Student's interval contains the mean of all seeds in 95
# of 100 such experiments. With three seeds it is wide, and it has to be: that is what three seeds say.

# %%
figure, axes = plt.subplots(figsize=(7, 2.2), layout="constrained")
for row, (routing, values) in enumerate(accuracies.items()):
    low, high = over_seeds(values)
    axes.plot([low, high], [row, row], color=COLORS[routing], linewidth=6, alpha=0.3, solid_capstyle="butt")
    axes.plot(values, [row] * len(values), "o", color=COLORS[routing])
    print(f"{routing:8} mean {sum(values) / len(values):.2%}, 95 % interval {low:.2%} to {high:.2%}")
axes.set_yticks(range(len(accuracies)), list(accuracies))
axes.set(xlabel="test accuracy: three seeds, and the interval of their mean")
axes.invert_yaxis()
axes.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# ## Differences
#
# Two intervals that overlap may still hide a difference, so ask for the interval of the difference itself (Welch's). If
# it contains zero, the experiment does not tell the two apart.

# %%
for first, second in (("dynamic", "em"), ("dynamic", "fm"), ("em", "fm")):
    low, high = difference_over_seeds(accuracies[first], accuracies[second])
    verdict = "inconclusive" if low < 0 < high else f"{first if low > 0 else second} is ahead"
    print(f"{first} less {second}: {100 * low:+.2f} to {100 * high:+.2f} points: {verdict}")

# %% [markdown]
# Three comparisons at 95 % find a difference that is not there more often than one in twenty times. Decide beforehand
# which one you want to know about, or correct for their number.
#
# ## Robustness
#
# The same networks on distorted images, 250 of them. A band is the range over the three seeds: where bands overlap, the
# seed matters more than the routing.

# %%
from torchcaps.lab.explanation.distortions import DISTORTIONS, distort

some = test.batch(torch.arange(0, len(test), 4))
figure, panels = plt.subplots(1, 3, figsize=(10, 3), layout="constrained", sharey=True)
for panel, name in zip(panels, ("rotation", "translation", "occlusion"), strict=True):
    amounts = [amount for amount in DISTORTIONS[name].amounts if amount >= 0]
    for routing in ROUTINGS:
        curves = [
            [measure_accuracy(model, distort(some.image, name, amount), some.label) for amount in amounts]
            for model in models[routing]
        ]
        found = np.array(curves)
        panel.fill_between(amounts, found.min(0), found.max(0), color=COLORS[routing], alpha=0.25, linewidth=0)
        panel.plot(amounts, found.mean(0), color=COLORS[routing], label=routing)
    panel.set(xlabel=f"{name}, {DISTORTIONS[name].unit}", ylim=(0, 1))
    panel.spines[["top", "right"]].set_visible(False)
panels[0].set_ylabel("test accuracy")
_ = panels[0].legend(frameon=False)

# %% [markdown]
# ## What to report
#
# - the number of seeds, the mean and its interval, never the best seed
# - what was equal: backbone, parameters, steps, data, tuning
# - differences with their own intervals
# - the scale: these are small networks after 120 steps on a sample of MNIST, and say nothing about the papers' networks
#
# ## Next
#
# - `torchcaps compare RUN RUN` does this for run folders: it pairs runs by seed, and predictions by example (McNemar's
#   test)
# - [Results](../results.md): all five routings on four datasets, by the same rules
# - [Reproducibility](../how-to/reproducibility.md)
