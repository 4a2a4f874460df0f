"""Features -> the first capsules, as each of the papers makes them.

All take a feature map ``(b, channel, row, column)`` and return a map of capsules ``(b, row, column, n, d)``;
``flatten_grid`` turns a map into one set of capsules.
"""

from torchcaps.primary.base import PrimaryCapsules, flatten_grid
from torchcaps.primary.batch_norm import BatchNormPrimaryCapsules
from torchcaps.primary.depthwise import DepthwisePrimaryCapsules
from torchcaps.primary.kinds import (
    LayerNormPrimaryCapsules,
    MatrixPrimaryCapsules,
    NormalizedPrimaryCapsules,
    NormalizedScorePrimaryCapsules,
    SquashedPrimaryCapsules,
)

__all__ = [
    "BatchNormPrimaryCapsules",
    "DepthwisePrimaryCapsules",
    "LayerNormPrimaryCapsules",
    "MatrixPrimaryCapsules",
    "NormalizedPrimaryCapsules",
    "NormalizedScorePrimaryCapsules",
    "PrimaryCapsules",
    "SquashedPrimaryCapsules",
    "flatten_grid",
]
