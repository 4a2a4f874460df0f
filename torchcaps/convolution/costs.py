"""What convolutions cost, in seconds.

Written by ``python -m benchmarks.fit_convolutions``, not by hand. PyTorch's take so much for each multiplication and
for each weight, those by transforms for each multiplication and for each number that a transform writes. What matters
are the ratios.
"""

COSTS: dict[str, dict[str, tuple[float, float]]] = {
    "inference": {"direct": (1.88e-11, 7.92e-10), "fourier": (2.88e-11, 3.8e-10), "winograd": (2.17e-11, 8.14e-10)},
    "training": {"direct": (2.16e-11, 3.3e-09), "fourier": (2.86e-11, 4.99e-10), "winograd": (2.03e-11, 8.5e-10)},
}
