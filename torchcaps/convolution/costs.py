"""What convolutions cost, in seconds.

Written by ``python -m benchmarks.fit_convolutions``, not by hand. PyTorch's take so much for each multiplication and
for each weight, those by transforms for each multiplication and for each number that a transform writes. What matters
are the ratios.
"""

COSTS: dict[str, dict[str, tuple[float, float]]] = {
    "inference": {"direct": (1.86e-11, 8.51e-10), "fourier": (4.76e-11, 1.57e-09), "winograd": (2.06e-11, 8.46e-10)},
    "training": {"direct": (2.25e-11, 3.22e-09), "fourier": (3.46e-11, 2.43e-09), "winograd": (2.4e-11, 9.17e-10)},
}
