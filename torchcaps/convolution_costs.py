"""What convolutions cost, in seconds.

Written by ``python -m benchmarks.fit_convolutions``, not by hand. PyTorch's take so much for each multiplication and
for each weight, those by Fourier transforms for each multiplication and for each number that a transform writes. What
matters are the ratios.
"""

COSTS: dict[str, dict[str, tuple[float, float]]] = {
    "inference": {"direct": (1.93e-11, 1.48e-09), "fourier": (2.14e-11, 1.4e-09)},
    "training": {"direct": (2.21e-11, 5.72e-09), "fourier": (1.43e-11, 2.17e-09)},
}
