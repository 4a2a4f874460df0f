"""What each path of the votes costs, in seconds.

Written by ``python -m benchmarks.fit_costs``, not by hand. A call costs so much, and so much more for each number of
the votes and for each number of the vote weights. What matters are the ratios.
"""

COSTS: dict[str, dict[str, tuple[float, float, float]]] = {
    "inference": {
        "plain": (0.000687, 1.68e-08, 0),
        "native": (0.00108, 6.18e-09, 1.4e-09),
        "blocks": (0.00137, 7.45e-09, 2.65e-09),
    },
    "training": {
        "plain": (0.0022, 4.4e-08, 1.2e-09),
        "native": (0.00276, 1.28e-08, 4.62e-09),
        "blocks": (0.00563, 3.05e-08, 4.1e-09),
    },
}
