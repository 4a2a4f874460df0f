# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown]
# # Compare routings fairly
#
# You train one network with three routings, three times each, and put intervals around the results: how much of a
# difference is the routing, and how much is the seed? Then you rotate, shift and occlude the test images and ask again.
# It takes about two minutes.
