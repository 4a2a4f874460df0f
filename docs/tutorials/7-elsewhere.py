# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Take it elsewhere
#
# You fit a capsule network as a scikit-learn estimator, put a trained one into a folder that others can load from the
# Hugging Face hub, and run it in another runtime without PyTorch. It takes about a minute.
#
# ## Estimator
#
# `CapsuleClassifier` is a scikit-learn estimator: `fit`, `predict`, `score`. It goes into pipelines, grid searches and
# cross-validation. Here it stands beside a support vector machine on the same 1,500 digits.

# %%
import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.svm import SVC

import torchcaps as tc
from torchcaps.sklearn import CapsuleClassifier

os.chdir(tempfile.mkdtemp())
train, test = tc.data.load("mnist_sample", "train"), tc.data.load("mnist_sample", "test")
rows = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[:1500]
X, y = train.images[rows, 0].numpy(), train.labels[rows].numpy()
X_test, y_test = test.images[:, 0].numpy(), test.labels.numpy()

machine = SVC(C=10.0).fit(X.reshape(len(X), -1), y)
network = CapsuleClassifier(
    routing="fm",
    model_options={"widths": (16, 32, 32), "caps": 4},
    transforms={"pad": 2, "rotation": 10.0},  # random shifts and rotations, in training only
    epochs=12,
    random_state=0,
)
network.fit(X, y)
print(f"support vector machine: {machine.score(X_test.reshape(len(X_test), -1), y_test):.1%}")
print(f"capsule network:        {network.score(X_test, y_test):.1%}")

# %%
figure, axes = plt.subplots(figsize=(4.5, 4), layout="constrained")
_ = ConfusionMatrixDisplay.from_estimator(network, X_test, y_test, ax=axes, colorbar=False, cmap="Greys")

# %% [markdown]
# ## Hub
#
# `save_pretrained` writes a folder with the weights, the configuration and a card that says what the network is and how
# it was trained. `push_to_hub("you/your-network")` uploads the same files.

# %% tags=["remove-stderr"]
model = tc.load("shipped")
model.save_pretrained("shared")
for file in sorted(Path("shared").iterdir()):
    print(f"{file.name}: {file.stat().st_size:,} bytes")
print()
print("\n".join(Path("shared", "README.md").read_text().splitlines()[:30]))

# %% [markdown]
# Anybody can load it, from the folder or by its name on the hub. Files of strangers are checked, and run no code.

# %%
loaded = tc.models.from_pretrained("shared")
inputs = model.preprocess(test.batch(torch.arange(4)).image)
with torch.no_grad():
    assert torch.equal(loaded(inputs).logits, model(inputs).logits)
print("the same logits, bit for bit")

# %% [markdown]
# ## Export
#
# `tc.export.to_onnx` writes a network to one file, and compares it with PyTorch before the file gets its name. The
# couplings of every iteration come out too, if you ask for them.

# %%
tc.export.to_onnx(model, "digits.onnx", couplings=True)
print(f"digits.onnx: {Path('digits.onnx').stat().st_size / 1e6:.1f} MB")

# %% [markdown]
# From here on neither PyTorch nor torchcaps is needed: onnxruntime exists for C++, Java, C#, JavaScript and phones. The
# file says how to prepare an image, and what the classes are called.

# %%
import json

import onnxruntime

session = onnxruntime.InferenceSession("digits.onnx")
about = session.get_modelmeta().custom_metadata_map
print("classes:", json.loads(about["classes"]))
print("preprocessing:", about["preprocessing"])
print("outputs:", {output.name: output.shape for output in session.get_outputs()})

# %%
digits = test.batch(torch.arange(4)).image
images = model.preprocess(digits).numpy()
logits, presences, couplings = session.run(["logits", "presences", "couplings_1"], {"inputs": images})
figure, panels = plt.subplots(2, 4, figsize=(9, 3.6), layout="constrained", height_ratios=[1, 0.8])
for column in range(4):
    panels[0, column].imshow(digits[column, 0].numpy(), cmap="gray")
    panels[0, column].set_axis_off()
    panels[0, column].set_title(f"{logits[column].argmax()}")
    panels[1, column].bar(range(10), presences[column], color="#3182bd")
    panels[1, column].set(xticks=range(10), ylim=(0, 1))
    panels[1, column].spines[["top", "right"]].set_visible(False)
panels[1, 0].set_ylabel("presence")
print("couplings: examples, iterations, children, parents:", couplings.shape)

# %% [markdown]
# The numbers are those of PyTorch, up to rounding.

# %%
with torch.no_grad():
    difference = (model(torch.from_numpy(images)).logits - torch.from_numpy(logits)).abs().max().item()
assert difference < 1e-3
print(f"largest difference of the logits: {difference:.1e}")

# %% [markdown]
# `tc.export.load("digits.onnx")` is an ordinary model that onnxruntime runs, so
# `torchcaps predict digits.onnx photo.png` works as well. [Export](../export.md) has everything else.

# %% [markdown]
# ## Next
#
# - [scikit-learn](../sklearn.md): pipelines, grid searches, and the encoder
# - [Share models](../hub.md): pretrained models, cards, and the hub
# - [Export](../export.md): all outputs, metadata, and what cannot be exported
