"""What convolutions cost, in seconds.

Written by ``python -m benchmarks.fit_convolutions``, not by hand: for each task and way, what each unit of the work
takes that ``sizes.py`` counts. What matters are the ratios.
"""

COSTS: dict[str, dict[str, tuple[float, ...]]] = {
    "inference": {
        "direct": (1.9e-11, 2.62e-09, 8.86e-10, 2.29e-10),
        "implicit": (1.87e-11, 2.48e-10, 2.22e-10, 0),
        "fourier": (3.66e-11, 4.22e-09, 3.44e-10),
        "winograd": (2.4e-11, 1.92e-09, 8.44e-10),
    },
    "training": {
        "direct": (2.02e-11, 3.38e-09, 3.49e-09, 4.26e-10),
        "implicit": (1.88e-11, 0, 2.42e-10, 3.18e-09),
        "fourier": (2.98e-11, 3.72e-09, 4.44e-10),
        "winograd": (2.87e-11, 0, 6.59e-10),
    },
}
