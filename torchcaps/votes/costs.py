"""What each path of the votes costs, in seconds.

Written by ``python -m benchmarks.fit_costs``, not by hand. A call costs so much, and so much more for each number of
the votes and for each number of the vote weights. What matters are the ratios.
"""

COSTS: dict[str, dict[str, tuple[float, float, float]]] = {
    "inference": {
        "plain": (0.000548, 5.57e-09, 7.24e-11),
        "native": (0.000943, 4.73e-09, 1.4e-09),
        "blocks": (0.00125, 8.49e-09, 3.39e-09),
    },
    "training": {
        "plain": (0.0017, 1.4e-08, 9.22e-10),
        "native": (0.00229, 1.02e-08, 3.98e-09),
        "blocks": (0.00558, 3.43e-08, 2.55e-09),
    },
    "inference without kernels": {
        "plain": (0.00086, 2.19e-08, 0),
        "blocks": (0.00168, 9.42e-09, 2.79e-09),
    },
    "training without kernels": {
        "plain": (0.00263, 4.86e-08, 2.52e-09),
        "blocks": (0.00635, 3.54e-08, 1.02e-08),
    },
}

NUMBERS_PER_THREAD = 205_351
"""So many numbers of the votes take as long, in one pass, as it takes to start a thread."""

SUM_COSTS: dict[str, tuple[float, float, float]] = {
    "kernel 1": (4.51e-05, 0, 2.66e-09),
    "kernel 16": (1.08e-05, 1.48e-10, 8.07e-11),
    "kernel 4": (1.78e-05, 6.45e-11, 2.46e-10),
    "product": (7.75e-05, 5.5e-10, 8.43e-11),
}
"""The sum of all votes: a call, each number of the vote weights, and each product of one with a pose."""
