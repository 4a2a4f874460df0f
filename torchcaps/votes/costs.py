"""What each path of the votes costs, in seconds.

Written by ``python -m benchmarks.fit_costs``, not by hand. A call costs so much, and so much more for each number of
the votes and for each number of the vote weights. What matters are the ratios.
"""

COSTS: dict[str, dict[str, tuple[float, float, float]]] = {
    "inference": {
        "plain": (0.00067, 1.84e-08, 0),
        "native": (0.00111, 6.4e-09, 1.46e-09),
        "blocks": (0.00137, 8.32e-09, 2.65e-09),
    },
    "training": {
        "plain": (0.00218, 4.63e-08, 1.79e-09),
        "native": (0.00268, 1.58e-08, 5.06e-09),
        "blocks": (0.00564, 3.95e-08, 4.31e-09),
    },
}

NUMBERS_PER_THREAD = 248_346
"""So many numbers of the votes take as long, in one pass, as it takes to start a thread."""
