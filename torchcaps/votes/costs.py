"""What each path of the votes costs, in seconds.

Written by ``python -m benchmarks.fit_costs``, not by hand. A call costs so much, and so much more for each number of
the votes and for each number of the vote weights. What matters are the ratios.
"""

COSTS: dict[str, dict[str, tuple[float, float, float]]] = {
    "inference": {
        "plain": (0.000739, 9.71e-09, 8.85e-10),
        "native": (0.00113, 7.59e-09, 1.46e-09),
        "blocks": (0.00152, 8.18e-09, 3.16e-09),
    },
    "training": {
        "plain": (0.00238, 5.04e-08, 3.17e-09),
        "native": (0.00289, 1.63e-08, 5.95e-09),
        "blocks": (0.00586, 3.72e-08, 5.59e-09),
    },
}
