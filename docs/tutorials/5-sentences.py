# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown]
# # Sentences
#
# You route the hidden states of a frozen language model to two capsules, *negative* and *positive*, and see which words
# of a sentence counted for which. The language model reads each sentence once; what is trained has 37,000 parameters.
# It takes about two minutes.
