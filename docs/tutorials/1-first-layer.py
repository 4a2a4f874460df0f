# %% [markdown]
# # Your first capsule layer
#
# A capsule layer in a plain PyTorch loop: it learns digits in a minute, and you see which parts of an image it used.
