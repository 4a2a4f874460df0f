"""The part of the campaign that no paper has: all routings in one network, and dynamic routing to convergence."""

from reproduction.base import Item, Point, Study
from torchcaps.routing import ROUTINGS

CONTROL = "uniform"
COMPARED = {  # what the studies of a controlled comparison look at together
    "": ("dynamic", "em", "heinsen", "inverted_attention", "fm"),
    "control-": (CONTROL,),
    "newer-": ("self_attention", "fixed_point"),
    "latest-": ("self_routing", "vb"),
}
TITLES = {ROUTINGS[name].title: name for group in COMPARED.values() for name in group}
SCENES = {"MNIST sample": "mnist-sample", "Fashion-MNIST": "fashion-mnist", "CIFAR-10": "cifar10", "toys": "toys"}


def _which(routings: tuple[str, ...]) -> str:
    """What tells the studies of later routings from those of the papers' five."""
    titles = [ROUTINGS[name].title for name in routings]
    return "" if routings == COMPARED[""] else f" ({', '.join(titles)})"


COMPARISON = Point(
    "comparison",
    "All routings compared, and no routing",
    "No paper has this comparison: the same backbone, the same votes, the same loss, optimizer and length, parameters "
    "within 2 %. Uniform routing is the control: capsules whose votes all count the same.",
    tuple(
        Item(f"{data}, {name}", f"comparison/{recipe}", 1.7, changes=("--model.routing", routing))
        for data, recipe in SCENES.items()
        for name, routing in TITLES.items()
    ),
    studies=(
        Study("comparison-costs", "Size, time, memory", "routing_costs", minutes=4.0),
        *(
            Study(
                f"comparison-{recipe}-{group}robustness",
                f"{data}: robustness to distortion{_which(routings)}",
                "robustness",
                tuple(f"{data}, {ROUTINGS[name].title}" for name in routings),
                minutes=1.0 * len(routings),
                every_seed=True,
            )
            for data, recipe in SCENES.items()
            for group, routings in COMPARED.items()
        ),
    ),
)

FIXED_POINT = Point(
    "fixed-point",
    "Dynamic routing to convergence",
    "Tsai 2020 name infinitely many iterations as future work. The network of the controlled comparison on the MNIST "
    "sample, trained with 1, 2 and 3 iterations of dynamic routing and to convergence ([fixed-point "
    "routing](fixed-point.md)), and tested with other numbers. No claim is tested.",
    (
        *(
            Item(
                f"{number} iteration{'s' if number > 1 else ''}",
                "comparison/mnist-sample",
                1.5,
                changes=("--model.routing", "dynamic", "--routing.num-iters", str(number)),
            )
            for number in (1, 2, 3)
        ),
        Item("convergence", "comparison/mnist-sample", 1.7, changes=("--model.routing", "fixed_point")),
    ),
    studies=(
        Study(
            "fixed-point-iterations",
            "Iterations in testing, by those in training",
            "convergence",
            ("1 iteration", "2 iterations", "3 iterations", "convergence"),
            minutes=6.0,
            every_seed=True,
        ),
        Study(
            "fixed-point-cost",
            "Three iterations and convergence: size, time, memory",
            "cost",
            ("3 iterations", "convergence"),
        ),
    ),
)
