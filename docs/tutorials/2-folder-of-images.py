# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Train on a folder of images
#
# You start with a folder of images and end with a trained network, its report, predictions for new images, and a look
# at which parts of an image counted. All of it is a few commands; put your own folder in place of the one here. It
# takes about two minutes.
#
# ## A folder of images
#
# Any folder with one folder of images for each class will do. Here the images are toys that the package renders: five
# kinds of toys, six toys of each kind, each from many sides. Four toys of each kind are for training. The other two
# go into a folder `test`, so that the network is tested on toys that it has never seen.

# %% tags=["hide-input"]
import os
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from IPython.display import HTML, display
from PIL import Image

import torchcaps as tc
from torchcaps.data.toys import CATEGORIES, build_toy, photograph

os.chdir(tempfile.mkdtemp())
for category in CATEGORIES:
    for toy in range(6):
        folder = Path("my-images", "train" if toy < 4 else "test", category)
        folder.mkdir(parents=True, exist_ok=True)
        views = photograph(
            build_toy(category, toy), elevations=(1, 3, 5), azimuths=range(0, 18, 2), lightings=(0,), size=40
        )
        for number, view in enumerate(views[..., 0, :, :].flatten(0, -3)):  # the left eye of each stereo pair
            Image.fromarray(view.numpy()).save(folder / f"{category}-{toy}-{number:02}.png")

figure, panels = plt.subplots(2, 10, figsize=(10, 2.2), layout="constrained")
for column, category in enumerate(CATEGORIES):
    for row, split in enumerate(("train", "test")):
        files = sorted(Path("my-images", split, category).iterdir())
        for panel, file in zip(panels[row, 2 * column : 2 * column + 2], (files[4], files[-9]), strict=True):
            panel.imshow(Image.open(file), cmap="gray")
            panel.set_title(category if row == 0 else "", fontsize=8)
for panel in panels.flat:
    panel.set_axis_off()

# %% [markdown]
# ## Train
#
# One command picks the recipe for what it finds, fits the network to the images, trains, and tests once at the end.


# %%
def shell(command):
    """Run a command of the terminal, and show what it prints."""
    print("$", command)
    words = [sys.executable, "-m", *command.split()]
    plain = {name: value for name, value in os.environ.items() if "COLOR" not in name}  # notebooks ask for colors
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=plain)
    print(done.stdout)
    assert done.returncode == 0, f"{command} ended with {done.returncode}"


shell("torchcaps train my-images --scale laptop --epochs 8 --out my-run")

# %% [markdown]
# The interval says how far the accuracy would move with other test images. `--model.routing em` takes another routing,
# `--epochs 30` more time, and `torchcaps train my-images --help` lists all options.
#
# ## Read the report
#
# Every training writes a page: the result, learning curves, the worst mistakes, and where the routing sent the parts of
# a few images. It is one file that needs no network.

# %%
page = Path("my-run", "report.html").read_text()
frame = f'<iframe srcdoc="{escape(page)}" style="width: 100%; height: 600px; border: 1px solid #ccc"></iframe>'
display(HTML(f"<div>{frame}</div>"))

# %% [markdown]
# The same numbers are in the run folder, one line of JSON for every few steps.

# %%
from torchcaps.lab.training import Run

run = Run.open("my-run")
training = [row for row in run.metrics() if row["kind"] == "train"]
figure, axes = plt.subplots(figsize=(7, 2.4), layout="constrained")
axes.plot([row["step"] for row in training], [row["loss"] for row in training], linewidth=1)
axes.set(xlabel="step", ylabel="loss", ylim=(0, None))
axes.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# ## Predict new images
#
# `predict` reads an image as the training did, and says what it changed about it.

# %%
photos = [sorted(Path("my-images", "test", category).iterdir())[5] for category in CATEGORIES]
shell("torchcaps predict my-run " + " ".join(map(str, photos)))

# %% [markdown]
# ## Look inside
#
# `tc.load` gives the model with its class names and its preprocessing; `tc.lab.explain` draws what its capsules do.
# Here: which parts of the image each class used.

# %%
model = tc.load("my-run")
examples = tc.data.load("folder:my-images", "test")
batch = examples.batch(torch.arange(0, len(examples), len(examples) // 3)[:3])
explained = tc.lab.explain(model, model.preprocess(batch.image), batch.label, model.class_names, topics=["couplings"])
print(explained.figures[0].caption)
explained.figures[0].figure

# %% [markdown]
# `torchcaps explain my-run` writes all figures that apply to the run as one page.
#
# ## Next
#
# - [Your own images](../how-to/own-images.md): formats, sizes, splits
# - [Training](../training.md): stop, resume, several processes, what is in a run folder
# - [Explanation](../explain.md): all figures and the numbers behind them
