"""What each path of the votes costs, in seconds.

Written by ``python -m benchmarks.fit_costs``, not by hand. A call costs so much, and so much more for each number of
the votes and for each number of the vote weights. What matters are the ratios.
"""

COSTS: dict[str, dict[str, tuple[float, float, float]]] = {
    "inference": {
        "plain": (0.000541, 8.78e-09, 0),
        "native": (0.001, 4.99e-09, 1.69e-09),
        "blocks": (0.00137, 6.81e-09, 1.82e-09),
    },
    "training": {
        "plain": (0.00152, 3.93e-08, 0),
        "native": (0.00252, 1.18e-08, 3.95e-09),
        "blocks": (0.00539, 3.04e-08, 2.98e-09),
    },
}

NUMBERS_PER_THREAD = 314_538
"""So many numbers of the votes take as long, in one pass, as it takes to start a thread."""
