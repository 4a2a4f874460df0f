"""What convolutions cost, in seconds.

Written by ``python -m benchmarks.fit_convolutions``, not by hand. PyTorch's take so much for each multiplication and
for each weight, those by Fourier transforms for each multiplication and for each number that a transform writes. What
matters are the ratios.
"""

COSTS: dict[str, dict[str, tuple[float, float]]] = {
    "inference": {"direct": (2.04e-11, 1.14e-09), "fourier": (1.93e-11, 1.65e-09)},
    "training": {"direct": (2.3e-11, 5.34e-09), "fourier": (1.81e-11, 1.89e-09)},
}
