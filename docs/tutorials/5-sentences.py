# %% [markdown]
# # Sentences
#
# Route the states of a language model, and see which words counted.
