# %% [markdown]
# # Take it elsewhere
#
# Export a network, use it as an estimator, share it.
