"""torch's optimizers by a recipe's words, and their state as named tensors."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.lab.recipes import Optimizer
from torchcaps.lab.training.schedules import Rates


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
