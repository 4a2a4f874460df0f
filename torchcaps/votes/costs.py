"""What each path of the votes costs, in seconds.

Written by ``python -m benchmarks.fit_costs``, not by hand. A call costs so much, and so much more for each number of
the votes and for each number of the vote weights. What matters are the ratios.
"""

COSTS: dict[str, dict[str, tuple[float, float, float]]] = {
    "inference": {
        "plain": (0.000641, 1.51e-08, 5.48e-10),
        "native": (0.00107, 7.68e-09, 1.41e-09),
        "blocks": (0.0014, 8.15e-09, 3.01e-09),
    },
    "training": {
        "plain": (0.00227, 4.47e-08, 2.21e-09),
        "native": (0.00278, 1.31e-08, 5.05e-09),
        "blocks": (0.00571, 3.19e-08, 4.31e-09),
    },
}

NUMBERS_PER_THREAD = 223_871
"""So many numbers of the votes take as long, in one pass, as it takes to start a thread."""
