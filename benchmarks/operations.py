"""Multiplications and additions of the formulas, for the share of the machine's rate that a case comes to.

They are those of a forward pass with the votes built once: a product of so many columns for each number of the votes,
and passes over the votes, each a multiplication and an addition for each number. What is of parents or of pairs alone,
such as a softmax, is not counted. The backward pass takes twice as many.
"""

GAUSSIAN = 13.0  # passes of 3 iterations: 3 means, 3 variances and 2 distances; the latter two are of squares
ATTENTION = 2.5  # of 2 iterations: a sum, which has no multiplications, an agreement and a mix
DYNAMIC = 5.0  # of 3 iterations: 3 mixes and 2 agreements
PASSES = {
    "dynamic": DYNAMIC,
    "em": GAUSSIAN,
    "heinsen": GAUSSIAN,
    "inverted_attention": ATTENTION,
    "fm": 3.0,  # lengths, unit vectors, their sum, the sum of their squares
    "self_attention": 2.5,  # a sum, an agreement and a mix
    "self_routing": 1.0,  # a mix; the logits are made of the poses
    "uniform": 0.0,  # the sum over the children is part of the product
    "vb": GAUSSIAN,
}
"""Passes over the votes of each routing with its usual number of iterations. There is none for fixed-point routing,
whose iterations depend on its inputs."""


def count_operations(votes: int, columns: int, passes: float, *, training: bool = True) -> float:
    """Multiplications and additions of a training step, or of a forward pass.

    Args:
        votes: numbers of the votes.
        columns: numbers of a child's pose that each of them is a product of.
        passes: passes over the votes.
        training: whether there is a backward pass, which takes twice as many.
    """
    return (3.0 if training else 1.0) * 2.0 * votes * (columns + passes)


def count_layer_operations(
    routing: str, pairs: int, pose: int, child_pose: int, columns: int, *, training: bool = True
) -> float | None:
    """Multiplications and additions of a layer; none for a routing whose passes are not known.

    Args:
        routing: name of the routing.
        pairs: pairs of a child and a parent, of all examples and windows.
        pose: numbers of a parent's pose.
        child_pose: numbers of a child's pose.
        columns: numbers of a child's pose that each number of a vote is a product of; fewer for matrix poses.
        training: whether there is a backward pass.
    """
    if routing not in PASSES:
        return None
    logits = child_pose / pose if routing == "self_routing" else 0.0  # a product for each pair
    return count_operations(pairs * pose, columns, PASSES[routing] + logits, training=training)
