"""What convolutions cost, in seconds.

Written by ``python -m benchmarks.fit_convolutions``, not by hand: for each task and way, what each unit of the work
takes that ``sizes.py`` counts. What matters are the ratios.
"""

COSTS: dict[str, dict[str, tuple[float, ...]]] = {
    "inference": {
        "direct": (1.85e-11, 2.63e-09, 9.39e-10, 2.47e-10),
        "implicit": (1.83e-11, 2.5e-10, 2.38e-10, 0),
        "fourier": (3.36e-11, 2.79e-09, 3.68e-10, 5.88e-10),
        "winograd": (2.27e-11, 1.91e-09, 8.52e-10),
    },
    "training": {
        "direct": (1.92e-11, 2.8e-09, 3.77e-09, 5.21e-10),
        "implicit": (1.81e-11, 0, 2.69e-10, 3.35e-09),
        "fourier": (2.65e-11, 2.21e-09, 5.13e-10, 4.93e-10),
        "winograd": (2.75e-11, 0, 6.65e-10),
    },
    "first layer": {
        "direct": (2.01e-11, 3.36e-09, 4.22e-09, 3.75e-10),
        "implicit": (1.7e-11, 7e-11, 3.42e-10, 4.66e-09),
        "fourier": (3.59e-11, 3.86e-09, 5.02e-10, 0),
        "winograd": (0, 8.82e-10, 1.04e-09),
    },
}
