"""Optimizers by the names that recipes use, their state as named tensors, and the learning rate of every step."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from torchcaps.lab.recipes import Optimizer, Schedule


class Rates(NamedTuple):
    """What a step is taken with."""

    lr: float
    momentum: float


def rates(step: int, total: int, schedule: Schedule, optimizer: Optimizer) -> Rates:
    """The rates of a step (the first is 0) of ``total``.

    >>> regime = Schedule("warmup_cosine", warmup=0.1, low=1e-5, momentum_low=0.9 * 0.999)
    >>> [rates(step, 101, regime, Optimizer("radam", lr=5e-4, momentum=0.999)).lr for step in (0, 10, 100)]
    [1e-05, 0.0005, 1e-05]
    """
    highest = optimizer.lr
    if schedule.kind == "constant":
        return Rates(highest, optimizer.momentum)
    if schedule.kind == "exponential":
        times = step / schedule.every if schedule.smooth else step // schedule.every
        return Rates(max(schedule.floor, highest * schedule.factor**times), optimizer.momentum)
    if schedule.kind == "steps":
        passed = sum(step >= round(share * total) for share in schedule.milestones)
        return Rates(highest * schedule.factor**passed, optimizer.momentum)
    if schedule.kind == "warmup_cosine":
        return _warmup_cosine(step, total, schedule, optimizer)
    raise ValueError(f"no schedule {schedule.kind!r}; there are constant, exponential, steps and warmup_cosine")


def _warmup_cosine(step: int, total: int, schedule: Schedule, optimizer: Optimizer) -> Rates:
    """Heinsen 2019, §4.2: both change linearly over the first share of training, and return with a cosine shape; the
    momentum is lowest where the learning rate is highest. First and last step are at the ends exactly."""
    height = _height(step / max(1, total - 1), schedule.warmup)
    peak = optimizer.momentum if schedule.momentum_low is None else schedule.momentum_low
    return Rates(_between(schedule.low, optimizer.lr, height), _between(optimizer.momentum, peak, height))


def _height(progress: float, warmup: float) -> float:
    """0 at both ends, 1 where the warm-up ends."""
    if progress < warmup:
        return progress / warmup
    return 0.5 + 0.5 * math.cos(math.pi * (progress - warmup) / (1.0 - warmup)) if warmup < 1.0 else 1.0


def _between(start: float, end: float, height: float) -> float:
    return start * (1.0 - height) + end * height  # exact at both ends


def build_optimizer(model: nn.Module, wanted: Optimizer) -> torch.optim.Optimizer:
    """The optimizer of a model's trained parameters."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    common: dict[str, Any] = {"lr": wanted.lr, "weight_decay": wanted.weight_decay}
    if wanted.nesterov and wanted.kind != "sgd":
        raise ValueError(f"optimizer.nesterov is for sgd; got optimizer.kind={wanted.kind!r}")
    if wanted.kind == "sgd":
        return torch.optim.SGD(parameters, momentum=wanted.momentum, nesterov=wanted.nesterov, fused=True, **common)
    common |= {"betas": (wanted.momentum, wanted.beta2), "eps": wanted.eps}
    if wanted.kind == "adam":
        return torch.optim.Adam(parameters, fused=True, **common)
    if wanted.kind == "adamw":
        return torch.optim.AdamW(parameters, fused=True, **common)
    if wanted.kind == "radam":
        return torch.optim.RAdam(parameters, decoupled_weight_decay=True, foreach=True, **common)
    raise ValueError(f"no optimizer {wanted.kind!r}; there are adam, adamw, radam and sgd")


def set_rates(optimizer: torch.optim.Optimizer, rates: Rates) -> None:
    """What the next step is taken with."""
    for group in optimizer.param_groups:
        group["lr"] = rates.lr
        if "betas" in group:
            group["betas"] = (rates.momentum, group["betas"][1])
        else:
            group["momentum"] = rates.momentum


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimizer's state, by ``parameter.key``; all else about it follows from recipe and step."""
    return {
        f"{name}.{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
        if value is not None
    }


def load_optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Put a state back; torch sees to the devices."""
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    places = {name: place for place, name in enumerate(trained)}
    state: dict[int, dict[str, Tensor]] = {}
    for full_name, tensor in tensors.items():
        name, _, key = full_name.rpartition(".")
        if tensor.shape == trained[name].shape:  # fused steps walk through memory: it must lie as the parameter does
            tensor = torch.empty_like(trained[name], dtype=tensor.dtype).copy_(tensor)
        state.setdefault(places[name], {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
