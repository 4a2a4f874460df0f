"""Multiplications and additions of the formulas, for the share of the machine's rate that a case comes to.

They are those of a forward pass with the votes built once: a product of so many columns for each number of the votes,
and passes over the votes, each a multiplication and an addition for each number. What is of parents or of pairs alone,
such as a softmax, is not counted, nor are biases. The backward pass takes twice as many.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

GAUSSIAN = 13.0  # passes of 3 iterations: 3 means, 3 variances and 2 distances; the latter two are of squares
ATTENTION = 2.5  # of 2 iterations: a sum, which has no multiplications, an agreement and a mix
DYNAMIC = 5.0  # of 3 iterations: 3 mixes and 2 agreements
FM = 3.0  # lengths, unit vectors, their sum, the sum of their squares
# Operations for each number; additions are of biases.
ELEMENTWISE = {"aten.mul": 1, "aten.sub": 1, "aten.div": 1, "aten.pow": 1, "aten.sum": 1, "aten.linalg_vector_norm": 2}


def count_operations(votes: int, columns: int, passes: float, *, training: bool = True) -> float:
    """Multiplications and additions of a training step, or of a forward pass.

    Args:
        votes: numbers of the votes.
        columns: numbers of a child's pose that each of them is a product of.
        passes: passes over the votes.
        training: whether there is a backward pass, which takes twice as many.
    """
    return (3.0 if training else 1.0) * 2.0 * votes * (columns + passes)


class CountOperations(TorchDispatchMode):
    """Counts what plain code does with tensors as large as its votes, and products of poses for each pair.

    Args:
        pairs: pairs of a child and a parent, of all examples.
        pose: numbers of a vote.
    """

    def __init__(self, pairs: int, pose: int) -> None:
        super().__init__()
        self.pairs, self.votes = pairs, pairs * pose
        self.of_votes = self.of_pairs = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> object:
        found = func(*args, **(kwargs or {}))
        large = max((each.numel() for each in (*args, found) if isinstance(each, Tensor)), default=0) >= self.votes
        packet = func._overloadpacket
        if packet in flop_registry:
            products = flop_registry[packet](*args, out_val=found)
            if large:
                self.of_votes += products
            elif isinstance(found, Tensor) and found.numel() >= self.pairs:
                self.of_pairs += products
        elif large:
            numbers = max(each.numel() for each in (*args, found) if isinstance(each, Tensor))
            self.of_votes += ELEMENTWISE.get(str(packet), 0) * numbers
        return found


def count_passes(work: Callable[[], object], pairs: int, pose: int, child_pose: int) -> tuple[float, float]:
    """Passes over the votes of a dense layer's forward pass in plain code, and products of a child's pose for each pair
    besides its votes, such as logits.

    Args:
        work: the forward pass.
        pairs: its pairs of a child and a parent, of all examples.
        pose: numbers of a parent's pose.
        child_pose: numbers of a child's pose.
    """
    with CountOperations(pairs, pose) as counter:
        work()
    return counter.of_votes / (2 * pairs * pose) - child_pose, counter.of_pairs / (2 * pairs * child_pose)
