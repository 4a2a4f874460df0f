"""What each path of the votes costs, in seconds.

Written by ``python -m benchmarks.fit_costs``, not by hand. A call costs so much, and so much more for each number of
the votes and for each number of the vote weights. What matters are the ratios.
"""

COSTS: dict[str, dict[str, tuple[float, float, float]]] = {
    "inference": {
        "plain": (0.00052, 8.85e-09, 0),
        "native": (0.00101, 4.96e-09, 1.82e-09),
        "blocks": (0.00137, 6.18e-09, 2.01e-09),
    },
    "training": {
        "plain": (0.00152, 3.68e-08, 4.56e-11),
        "native": (0.00249, 1.04e-08, 4.59e-09),
        "blocks": (0.00535, 2.69e-08, 3.43e-09),
    },
}

NUMBERS_PER_THREAD = 322_536
"""So many numbers of the votes take as long, in one pass, as it takes to start a thread."""
