# %% [markdown]
# # Parts and wholes
#
# Watch five routings find out which votes agree, step by step.
