"""Capsules -> votes: what each child says about the pose of each parent.

``tensor_votes`` takes votes that the caller has built, ``dense_votes`` a weight for each pair, ``shared_votes`` one for
each parent, ``convolutional_votes`` one for each pair within a kernel. Each is an operator that answers a few questions
in the cheapest way it knows; routings ask nothing else.
"""

from torchcaps.kernels.workspace import release_workspaces
from torchcaps.votes.base import Votes
from torchcaps.votes.kinds import Competition, convolutional_votes, dense_votes, shared_votes, tensor_votes

__all__ = [
    "Competition",
    "Votes",
    "convolutional_votes",
    "dense_votes",
    "release_workspaces",
    "shared_votes",
    "tensor_votes",
]
