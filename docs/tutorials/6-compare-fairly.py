# %% [markdown]
# # Compare routings fairly
#
# Seeds, intervals and robustness: what a difference of one percent means.
