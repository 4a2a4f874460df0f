# %% [markdown]
# # Write a routing of your own
#
# A routing in twenty lines, held to a reference, and used in a network.
