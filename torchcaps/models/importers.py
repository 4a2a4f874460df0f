"""Weights that authors have published, as models of ours."""

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchcaps.models.base import Model
from torchcaps.models.registry import create

# Names in the files of Heinsen 2019 (github.com/glassroom/heinsen_routing, MIT license) and in our models.
_HEINSEN = (
    (r"convolve\.(\d+)\.(\w+)", r"backbone.1.\1.\2"),
    (r"compute_a\.(\d)\.(\w+)", r"primary.score.\1.\2"),
    (r"compute_mu\.(\d)\.(\w+)", r"primary.pose.\1.\2"),
    (r"depth_emb", r"backbone.offset"),
    (r"detect_parts\.(\d)\.(\w+)", r"primary.detect.\1.\2"),
    (r"routings\.(\d)\.W", r"layers.\1.weight"),
    (r"routings\.(\d)\.B", r"layers.\1.bias"),
    (r"routings\.(\d)\.beta_use", r"layers.\1.routing.beta_use"),
    (r"routings\.(\d)\.beta_ign", r"layers.\1.routing.beta_ignore"),
)
_CONSTANT = re.compile(r"routings\.\d\.CONST_one")  # the number one, which his module keeps as a buffer


def heinsen2019(path: str | Path) -> Model:
    """The model of one of Heinsen's published files, ``…_pretrained_model_state_dict.pt`` (smallNORB, SST5R, SST2R).

    ``tc.models.save`` then keeps it as safetensors.
    """
    state = torch.load(path, weights_only=True, map_location="cpu")
    return heinsen2019_from_state(state, str(path))


def heinsen2019_from_state(state: dict[str, Tensor], source: str = "the state") -> Model:
    """The model of a state dict with Heinsen's names."""
    renamed = {_rename(name, source): tensor for name, tensor in state.items() if not _CONSTANT.fullmatch(name)}
    if "layers.1.weight" not in renamed:
        raise ValueError(f"{source} has no routings.1.W; expected one of Heinsen's published state dicts")
    caps, classes, *_ = renamed["layers.1.weight"].shape
    if "backbone.offset" in renamed:
        depth, embedding = renamed["backbone.offset"].shape
        features = renamed["primary.detect.0.weight"].shape[0]
        name = "heinsen2019_sst2" if classes == 2 else "heinsen2019_sst5"
        sizes = {"depth": depth, "embedding": embedding, "features": features}
        overrides: dict[str, Any] = {"classes": classes, "caps": caps, **sizes}
    else:
        channels = renamed["backbone.1.0.weight"].shape[0] - 2
        width = renamed["backbone.1.1.weight"].shape[0]
        name = "heinsen2019_smallnorb"
        overrides = {"classes": classes, "channels": channels, "stem_channels": width, "caps": caps}
    model = create(name, **overrides)
    model.load_state_dict(renamed)
    return model


def _rename(name: str, source: str) -> str:
    for pattern, ours in _HEINSEN:
        if match := re.fullmatch(pattern, name):
            return match.expand(ours)
    raise ValueError(f"{source} has a tensor {name!r}, which none of Heinsen's published models has")
