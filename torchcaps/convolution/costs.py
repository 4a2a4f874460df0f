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
        "direct": (1.97e-11, 2.73e-09, 3.62e-09, 4.8e-10),
        "implicit": (1.88e-11, 0, 2.42e-10, 3.18e-09),
        "fourier": (2.82e-11, 2.56e-09, 4.66e-10),
        "winograd": (2.87e-11, 0, 6.59e-10),
    },
    "first layer": {
        "direct": (2.18e-11, 3.3e-09, 3.44e-09, 3.26e-10),
        "implicit": (1.71e-11, 6.85e-11, 3.4e-10, 4.63e-09),
        "fourier": (5.92e-11, 4.1e-09, 9.31e-11),
        "winograd": (0, 8.82e-10, 1.04e-09),
    },
}
