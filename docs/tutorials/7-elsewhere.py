# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Take it elsewhere
#
# You take a trained network out of PyTorch, use one as a scikit-learn estimator, and put one into a folder that others
# can load. It takes about a minute.
