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

SUM_COSTS: dict[str, tuple[float, float, float, float]] = {
    "kernel 1": (1.68e-05, 0, 2.85e-09, 6.82e-05),
    "kernel 16": (7.88e-06, 3.04e-10, 8.13e-11, 6.82e-05),
    "kernel 4": (1.01e-05, 7.76e-10, 2.29e-10, 6.82e-05),
    "product": (6.02e-05, 5.93e-10, 8.57e-11, 1.07e-05),
}
"""The sum of all votes: a call, each number of the vote weights, each product of one with a pose, which
threads share, and starting threads."""

SHARED_COSTS: dict[str, dict[str, tuple[float, float, float]]] = {
    "inference": {
        "closed": (0.0064, 0, 2.5e-09),
        "built": (0.00136, 7.41e-09, 5.42e-10),
        "few": (0.00091, 6.93e-10, 8.65e-10),
    },
    "training": {
        "closed": (0.0146, 2.27e-08, 4.98e-09),
        "built": (0.0038, 3.72e-08, 1.64e-09),
        "few": (0.00266, 4.33e-10, 1.91e-09),
    },
    "inference without kernels": {
        "closed": (0.00693, 3.74e-09, 1.77e-09),
        "built": (0.00169, 7.93e-09, 4.45e-10),
    },
    "training without kernels": {
        "closed": (0.0159, 2.52e-08, 4.16e-09),
        "built": (0.0045, 3.67e-08, 1.6e-09),
    },
}
"""Votes by shared weights: a call, each number that is made (features in closed form, else votes), and
each product, of a feature for a parent or of a pose for a vote."""
