"""Every model of the registry at a size that runs in milliseconds: odd image sizes, few channels, same structure."""

import functools
import re
from typing import Any

import torch
from torch import Tensor

import torchcaps as tc
from torchcaps.models import CapsuleNet, Model

_CAPSNET = {"stem_channels": 6, "kernel_size": 5, "primary_caps": 3, "primary_pose": 4, "class_pose": 5, "classes": 4}
_CAPSNET |= {"image_size": (17, 19), "channels": 2}
_RESNET = {"stem_channels": 3}
_MATRIX = {"image_size": (17, 19), "stem_channels": 5, "caps": (2, 3, 2), "pose": (3, 3), "classes": 4, "channels": 2}
_INVERTED = {"image_size": (17, 19), "channels": 2, "stem_channels": 6, "caps": 3, "classes": 4}
_ZHAO = {"image_size": (20, 12), "channels": 2, "width": 3, "blocks": 1, "classes": 4, "decoder_width": 8}
_EFFICIENT = {"widths": (3, 4, 4, 6), "primary_pose": 3, "class_pose": 4, "image_size": (17, 19), "channels": 2}
_EFFICIENT |= {"decoder_widths": (8, 8), "classes": 4}

REDUCED: dict[str, dict] = {
    "sabour2017": _CAPSNET,
    "hinton2018": _MATRIX,
    "heinsen2019_smallnorb": {"image_size": (37, 41), "stem_channels": 5, "caps": 4, "classes": 3},
    "heinsen2019_sst": {"depth": 3, "embedding": 7, "features": 6, "caps": 4, "tokens": 5, "classes": 3},
    "heinsen2022": {"depth": 3, "embedding": 7, "caps": 4, "pose": 6, "tokens": 5, "classes": 3},
    "tsai2020_cifar10": _INVERTED | {"pose": (3, 3)},
    "tsai2020_cifar100": _INVERTED | {"pose": (2, 2), "hidden": (5,)},
    "tsai2020_diverse_multimnist": _INVERTED | {"pose": (3, 3)},
    "tsai2020_diverse_multimnist_vector": _INVERTED | {"pose": 5},
    "tsai2020_cifar10_resnet": _RESNET,
    "tsai2020_cifar100_resnet": _RESNET,
    "tsai2020_cifar10_dynamic": _CAPSNET,
    "tsai2020_cifar100_dynamic": _CAPSNET,
    "tsai2020_cifar10_resnet_dynamic": _CAPSNET | _RESNET,
    "tsai2020_cifar100_resnet_dynamic": _CAPSNET | _RESNET,
    "tsai2020_cifar10_em": _MATRIX,
    "tsai2020_cifar100_em": _MATRIX,
    "tsai2020_cifar10_resnet_em": _MATRIX | _RESNET,
    "tsai2020_cifar100_resnet_em": _MATRIX | _RESNET,
    "zhao2020": _ZHAO,
    "zhao2020_cifar10": _ZHAO | {"hidden": (3, 5)},
    "zhao2020_fashion_mnist": _ZHAO | {"hidden": (3, 5)},
    "efficient2021": _EFFICIENT,
    "efficient2021_smallnorb": {"image_size": (32, 40), "decoder_widths": (3, 4, 3)},
    "sr2019": {"image_size": (13, 9), "channels": 2, "classes": 4, "width": 2, "blocks": 1, "widths": (3, 4, 5)}
    | {"caps": 3, "pose": 4},
    "vb2020": {"image_size": (17, 19), "stem_channels": 5, "primary_caps": 2, "pose": (3, 3), "classes": 4},
    "vb2020_smallnorb": {"caps": (3,)},
    "vb2020_smallnorb_tiny": {"caps": ()},
    "cnn_sabour2017_mnist": {"image_size": (7, 9), "widths": (3, 4, 5), "hidden": (6, 7), "classes": 4},
    "cnn_sabour2017_multimnist": {"image_size": (9, 12), "widths": (3, 4), "hidden": 6, "classes": 4},
    "cnn_tsai2020_cifar": {"image_size": (33, 35), "width": 4, "classes": 4},
    "cnn_tsai2020_diverse": {"image_size": (17, 19), "width": 4, "hidden": 5, "classes": 4},
    "comparison": {"image_size": (9, 11), "widths": (4, 6), "caps": 2, "classes": 4},
    "attention_pooling": {"depth": 3, "embedding": 7, "features": 6, "queries": 4, "tokens": 5, "classes": 3},
    "resnet18": {"image_size": (9, 11), "width": 3, "classes": 4},
}


def overrides(name: str) -> dict:
    """The overrides of the longest key that the name begins with, on top of those of a shorter one."""
    keys = sorted((key for key in REDUCED if name.startswith(key)), key=len)
    assert keys, f"no reduced size for {name}: add one"
    fields: dict = {"num_iters": 2}
    for key in keys:
        fields |= REDUCED[key]
    known = tc.models.configure(name).__dataclass_fields__
    return {field: value for field, value in fields.items() if field in known}


def model(name: str) -> Model:
    torch.manual_seed(0)
    return tc.models.create(name, **overrides(name))


def capsule_net(name: str, **changes: Any) -> CapsuleNet:
    """A network of capsules at its reduced size, with further changes."""
    torch.manual_seed(0)
    net = tc.models.create(name, **(overrides(name) | changes))
    assert isinstance(net, CapsuleNet)
    return net


def inputs(built: Model, batch: int) -> Tensor:
    return torch.rand(batch, *built.image, generator=torch.Generator().manual_seed(1))


NAMES = tc.models.list()


def distinct() -> list[str]:
    """Names without those that are the same network at the reduced size."""
    seen, names = set(), []
    for name in NAMES:
        key = (tc.models.entry(name).build, repr(tc.models.configure(name, **overrides(name))))
        if key not in seen:
            seen.add(key)
            names.append(name)
    return names


def list_parts(name: str) -> set[str]:
    """What a model of the registry is made of: its modules, each with its options but without sizes."""
    built = model(name)
    parts = {re.sub(r"[\d.]+(e-\d+)?", "#", f"{type(part).__name__}({part.extra_repr()})") for part in built.modules()}
    if isinstance(built, CapsuleNet):
        parts.add(f"{built.num_iters is not None} {built.mode} {built.type_first}")
    return parts


@functools.cache
def varied() -> list[str]:
    """Names of models that have among them every part of every model."""
    parts = {name: list_parts(name) for name in NAMES}
    lacking = set[str]().union(*parts.values())
    chosen: list[str] = []
    while lacking:
        chosen.append(max(parts, key=lambda name: len(parts[name] & lacking)))
        lacking -= parts[chosen[-1]]
    return chosen
