"""The precision that losses need."""

import torch
from torch import Tensor


def at_least_float32(tensor: Tensor) -> Tensor:
    """The tensor in single precision if its number type is shorter: sums of squares and exponentials do not fit those.

    >>> at_least_float32(torch.zeros(1, dtype=torch.bfloat16)).dtype
    torch.float32
    """
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
