"""A model as exporters want it: tensors in, a fixed row of named tensors out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.capsules import Capsules, log_sigmoid
from torchcaps.decoders import Decoder
from torchcaps.layers import CapsuleLayer
from torchcaps.models.base import Model, Prediction
from torchcaps.models.capsule_net import CapsuleNet
from torchcaps.routing import Trace
from torchcaps.votes import Votes


@dataclass
class _Kept(Trace):
    """A trace that keeps the votes of every iteration, for routings without couplings."""

    votes: list[Votes] = field(default_factory=list)

    def record(self, votes: Votes, coupling: Tensor, pose: Tensor, score: Tensor | None) -> None:
        super().record(votes, coupling, pose, score)
        self.votes.append(votes)


class Outputs(nn.Module):
    """Any module, with all that it returns as one row of tensors that have names."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.compute(*inputs).values())

    def compute(self, *inputs: Tensor) -> dict[str, Tensor]:
        return name_tensors(self.module(*inputs))


class LayerOutputs(Outputs):
    """A capsule layer: poses and scores of the children in, those of the parents out."""

    def compute(self, *inputs: Tensor) -> dict[str, Tensor]:
        found = name_tensors(self.module(Capsules(*inputs)))
        return {f"parent_{name}": part for name, part in found.items()}


class ModelOutputs(Outputs):
    """A model: logits, class poses and presences, and what else is asked for."""

    def __init__(self, model: Model, *, couplings: bool = False, reconstruction: bool = False) -> None:
        super().__init__(model)
        self.couplings, self.reconstruction = couplings, reconstruction
        if couplings:
            _check_layers(model)
        if reconstruction:
            require_decoder(model)

    def compute(self, *inputs: Tensor) -> dict[str, Tensor]:
        model, couplings = self.module, {}
        if self.couplings:
            assert isinstance(model, CapsuleNet)
            prediction, couplings = _predict_with_couplings(model, inputs)
        else:
            prediction = model(*inputs)
        found = name_tensors(prediction)
        if self.reconstruction:
            capsules = prediction.capsules
            assert capsules is not None
            found["reconstruction"] = require_decoder(model)(capsules, prediction.logits.argmax(-1))
        return found | couplings


class DecoderOutputs(Outputs):
    """A decoder: the poses of all class capsules and the number of one of them in, its image out."""

    def compute(self, *inputs: Tensor) -> dict[str, Tensor]:
        poses, chosen = inputs
        return {"image": self.module(Capsules(poses), chosen)}


def name_tensors(returned: Any) -> dict[str, Tensor]:
    """What a module returned as tensors with names.

    >>> list(name_tensors(Capsules(torch.zeros(2, 3, 4), torch.zeros(2, 3))))
    ['pose', 'score']
    """
    if isinstance(returned, Prediction):
        found = {"logits": returned.logits}
        if returned.capsules is not None:
            # Capsules without a score get theirs from the head: its logit.
            score = returned.logits if returned.capsules.score is None else returned.capsules.score
            # Not sigmoid: onnxruntime's is good to 1e-7, which is a lot where presences are small.
            found |= {"poses": returned.capsules.pose, "presences": log_sigmoid(score).exp()}
        return found
    if isinstance(returned, Capsules):
        return {name: part for name, part in returned._asdict().items() if part is not None}
    if isinstance(returned, Tensor):
        return {"output": returned}
    if isinstance(returned, Mapping):
        return {str(name): part for name, part in returned.items()}
    if isinstance(returned, Sequence):
        parts = [name_tensors(part) for part in returned if part is not None]
        return {f"{name}_{number}": part for number, each in enumerate(parts, 1) for name, part in each.items()}
    raise ValueError(
        f"a module to export returns tensors, capsules or a prediction; this one returned a {type(returned).__name__}"
    )


def require_decoder(model: nn.Module) -> Decoder:
    """The decoder of a model, if it has one that was trained."""
    decoder = getattr(model, "decoder", None)
    if not isinstance(decoder, Decoder):
        raise ValueError("this model has no decoder, so no reconstruction; leave it out, or train with decoder=True")
    if "decoder" in getattr(model, "untrained", ()):
        raise ValueError("this model's decoder was never trained, so its images mean nothing; leave it out")
    return decoder


def _check_layers(model: nn.Module) -> None:
    if not isinstance(model, CapsuleNet):
        raise ValueError(f"a {type(model).__name__} has no capsules, so no couplings; leave them out")
    for number, layer in enumerate(model.layers, 1):
        if not isinstance(layer, CapsuleLayer):
            raise ValueError(
                f"layer {number} is a {type(layer).__name__} of your own, whose routing cannot be seen; leave "
                "couplings out"
            )


def _predict_with_couplings(model: CapsuleNet, inputs: Sequence[Tensor]) -> tuple[Prediction, dict[str, Tensor]]:
    kept = [_Kept() for _ in model.layers]
    capsules = model.stages(*inputs, traces=kept)[-1]
    couplings: dict[str, Tensor] = {}
    for number, (layer, trace) in enumerate(zip(model.layers, kept, strict=True), 1):
        assert isinstance(layer, CapsuleLayer)
        if layer.routing.couples:
            iterations = [step.coupling for step in trace.iterations]
        else:
            iterations = [layer.routing.share_agreement(votes) for votes in trace.votes]
        couplings[f"couplings_{number}"] = torch.stack(iterations, 1)
    return Prediction(model.head(capsules), capsules), couplings
