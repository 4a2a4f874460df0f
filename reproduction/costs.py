"""Studies of what networks cost: size, time and memory."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

import torch

import torchcaps.models as models
from reproduction.base import CampaignScale, Item, Job
from reproduction.comparison_plan import COMPARISON
from reproduction.measured import LIMITS, Measured, StudyRun, count
from torchcaps.lab.evaluation import over_seeds
from torchcaps.lab.loaders import ModelBatch
from torchcaps.lab.recipes import configure
from torchcaps.lab.training.distributed import World
from torchcaps.lab.training.examples import RecipeData
from torchcaps.lab.training.learner import Learner
from torchcaps.lab.training.optimizers import rates

COLUMNS = ("network", "parameters", "training step, ms", "inference of one image, ms", "memory, MiB")
MEBI = 1024**2


def cost(subjects: Sequence[StudyRun], scale: CampaignScale) -> Measured:
    """Size, time and memory of networks side by side."""
    from torchcaps.lab.explanation.comparison import measure_standing

    found = [
        measure_standing(
            each.opened.model,
            each.loader(),
            each.opened.loss,
            name=each.name,
            data=each.run.recipe.data.train,
            limit=LIMITS[scale]["counted"],
        )
        for each in subjects
    ]
    steps = _in_turns(_training_steps(subjects), LIMITS[scale]["repeats"])
    columns = (*COLUMNS, "accuracy")
    rows = [
        (
            one.name,
            one.parameters,
            1000 * median(steps[one.name]),
            one.milliseconds,
            one.mebibytes,
            count(one.correct, one.total),
        )
        for one in found
    ]
    about = (
        f"Training step: batch of {subjects[0].run.recipe.batch_size}, median of {LIMITS[scale]['repeats']} in turns. "
        f"Inference: batch of {found[0].batch}, "
        f"{found[0].threads} thread(s) in both; memory is the most that tensors hold in it."
    )
    return Measured(about, columns, rows)


def routing_costs(subjects: Sequence[StudyRun], scale: CampaignScale) -> Measured:
    """Size, time and memory of all networks of the controlled comparison, before training: none depends on the weights,
    but for how many iterations a routing to convergence takes."""
    from torchcaps.lab.explanation.comparison import peak_memory

    repeats, batch = LIMITS[scale]["repeats"], LIMITS[scale]["batch"]
    by_data: dict[str, list[Item]] = {}
    for item in COMPARISON.items:
        by_data.setdefault(item.recipe, []).append(item)
    rows = []
    for items in by_data.values():
        jobs = [Job(COMPARISON.name, item, item.seeds[0], scale) for item in items]
        data = [RecipeData(configure(job.item.recipe, scale, job.arguments)) for job in jobs]
        learners = {
            item.name: Learner(each.fit(), World(torch.device("cpu"))) for item, each in zip(items, data, strict=True)
        }
        loader = data[0].loader("train")
        some, few = (loader.batch(torch.arange(number)) for number in (data[0].recipe.batch_size, batch))
        steps = _in_turns({name: _training_step(learner, some) for name, learner in learners.items()}, repeats)
        nets = {name: learner.model.eval() for name, learner in learners.items()}
        with torch.inference_mode():
            passes = _in_turns({name: partial(net, *few.inputs) for name, net in nets.items()}, repeats)
        rows += [
            (
                name,
                models.count_parameters(net),
                1000 * median(steps[name]),
                1000 * median(passes[name]) / batch,
                peak_memory(net, few.inputs) / MEBI,
            )
            for name, net in nets.items()
        ]
    about = (
        f"Networks before training, on {torch.get_num_threads()} thread(s); fixed-point routing may take more "
        f"iterations after it. Training step: medians of {repeats} in turns. Inference: batches of {batch}; memory is "
        f"the most that tensors hold in it."
    )
    return Measured(about, COLUMNS, rows)


DIGIT_NETWORKS = {
    "CapsNet": ("sabour2017/mnist", "paper"),
    "CapsNet, a quarter as wide": ("sabour2017/mnist", "laptop"),
    "Efficient-CapsNet": ("efficient2021/mnist", "paper"),
}


def digit_networks(subjects: Sequence[StudyRun], scale: CampaignScale) -> Measured:
    """Size and speed of the networks for MNIST, before training; weights do not matter."""
    repeats, batch = LIMITS[scale]["repeats"], LIMITS[scale]["batch"]
    here = World(torch.device("cpu"))
    learners = {
        name: Learner(RecipeData(configure(recipe, scale if scale == "smoke" else size)).fit(), here)
        for name, (recipe, size) in DIGIT_NETWORKS.items()
    }
    digits = RecipeData(learners["CapsNet"].recipe).loader("train").batch(torch.arange(batch))
    steps = _in_turns({name: _training_step(learner, digits) for name, learner in learners.items()}, repeats)
    nets = {name: learner.model.eval() for name, learner in learners.items()}
    with torch.inference_mode():
        passes = {
            size: _in_turns({name: partial(net, digits.inputs[0][:size]) for name, net in nets.items()}, repeats)
            for size in (1, batch)
        }
    rows = [
        (
            name,
            models.count_parameters(net) - models.count_parameters(net.get_submodule("decoder")),
            models.count_parameters(net),
            models.count_macs(net, tuple(digits.inputs[0].shape[1:])),
            batch / median(steps[name]),
            1000 * median(passes[1][name]),
            batch / median(passes[batch][name]),
        )
        for name, net in nets.items()
    ]
    columns = (
        "network",
        "parameters",
        "with the decoder",
        "multiply-adds of an image",
        f"training, images a second in batches of {batch}",
        "inference of one image, ms",
        f"inference, images a second in batches of {batch}",
    )
    return Measured(f"On {torch.get_num_threads()} thread(s), medians of {repeats} in turns.", columns, rows)


# Zhao 2020, Table 1: milliseconds of a batch on the authors' CPU.
TABLE_1 = {
    "Fashion-MNIST": {"dynamic, 1 iteration": 127.95, "dynamic, 3 iterations": 157.69, "FM": 125.39},
    "CIFAR-10": {"dynamic, 1 iteration": 218.26, "dynamic, 3 iterations": 274.58, "FM": 203.34},
}
ROUTINGS: dict[str, dict[str, Any]] = {
    "dynamic, 1 iteration": {"routing": "dynamic", "num_iters": 1},
    "dynamic, 3 iterations": {"routing": "dynamic", "num_iters": 3},
    "FM": {"routing": "fm"},
}
SIZES: dict[str, dict[str, Any]] = {"Fashion-MNIST": {}, "CIFAR-10": {"image_size": 32, "channels": 3}}


OTHERWISE = (
    "dynamic routing never builds its votes here and takes a small part of a pass, most of which is convolutions; FM "
    "agreement has to see each vote to make it a unit vector"
)


def inference_time(subjects: Sequence[StudyRun], scale: CampaignScale) -> Measured:
    """Time of a forward pass of Sabour's network without decoder, its routing exchanged; weights do not matter."""
    batch, repeats = LIMITS[scale]["batch"], LIMITS[scale]["repeats"]
    narrow = {"stem_channels": 8, "primary_caps": 2} if scale == "smoke" else {}
    rows, comparisons, numbers = [], [], {}
    for data, size in SIZES.items():
        nets = {
            name: models.create("sabour2017_mnist", decoder=False, **narrow, **size, **routing).eval()
            for name, routing in ROUTINGS.items()
        }
        images = torch.rand(batch, *nets["FM"].image)
        with torch.inference_mode():
            took = _in_turns({name: partial(net, images) for name, net in nets.items()}, repeats)
        numbers[data] = took
        speed = {name: over_seeds([1 / seconds for seconds in times]) for name, times in took.items()}
        for name, times in took.items():
            low, high = over_seeds([1000 * seconds for seconds in times])
            rows.append((data, name, TABLE_1[data][name], 1000 * median(times), f"{low:.1f}–{high:.1f}"))
        for other in ("dynamic, 1 iteration", "dynamic, 3 iterations"):
            text = f"FM agreement takes less time than {other.replace(',', ' routing with')} on {data}"
            intervals = {"better": list(speed["FM"]), "worse": list(speed[other])}
            comparisons.append({"text": text, **intervals, "otherwise": OTHERWISE})
    about = (
        f"Batches of {batch} on {torch.get_num_threads()} thread(s), {repeats} in turns; networks of the paper's size."
    )
    columns = ("data", "routing", "paper's CPU, ms", "ours, ms", "95 % interval")
    return Measured(about, columns, rows, comparisons=comparisons, numbers=numbers)


def _training_steps(subjects: Sequence[StudyRun]) -> dict[str, Callable[[], object]]:
    """A training step of each, on a batch that is ready."""
    works: dict[str, Callable[[], object]] = {}
    for each in subjects:
        recipe = each.run.recipe
        learner = Learner(recipe, World(torch.device("cpu")))
        works[each.name] = _training_step(learner, each.run.loader("train").batch(torch.arange(recipe.batch_size)))
    return works


def _training_step(learner: Learner, batch: ModelBatch) -> Callable[[], object]:
    recipe = learner.recipe
    return partial(learner.learn, batch, 0, rates(0, 1, recipe.schedule, recipe.optimizer))


def _in_turns(works: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Times of each, one after the other in every round, so that a busy minute hits all; a first round is not timed."""
    took: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(repeats + 1):
        for name, work in works.items():
            began = time.perf_counter()
            work()
            if turn:
                took[name].append(time.perf_counter() - began)
    return took
