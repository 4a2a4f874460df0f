# %% [markdown]
# # Train on a folder of images
#
# From a folder of images to a trained network, its report, and a look inside.
