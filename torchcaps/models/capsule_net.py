"""Any backbone, any primary capsules, any routings, any head: the network that all models of the papers are."""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from torchcaps.capsules import Capsules
from torchcaps.decoders import Decoder
from torchcaps.heads import LinearHead, ScoreHead
from torchcaps.layers import CapsuleLayer, DenseCapsules
from torchcaps.losses import LOSSES, ClassificationLoss, choose_loss
from torchcaps.models.base import Model, Prediction
from torchcaps.models.specs import Dense, Given, LayerSpec, Primary, Shape
from torchcaps.models.timm_backbones import find_backbone
from torchcaps.primary import flatten_grid
from torchcaps.routing import Routing, Trace, concurrent_routing
from torchcaps.routing.concurrent import Mode

Mask = Bool[Tensor, "b n"] | Float[Tensor, "b n"]
"""What of a sequence is there: true or false, or a share from 0 to 1."""

HEADS: dict[str, Callable[[int], nn.Module]] = {
    "score": lambda pose: ScoreHead(),
    "linear": LinearHead,
}


class CapsuleNet(Model):
    """Backbone -> primary capsules -> layers of capsules -> head, and a decoder beside the head if there is one.

    Args:
        image: shape ``(channel, row, column)`` of the images to build for: the number of children of a layer with
            weights for each of them follows from it.
        backbone: any module from images to feature maps; or ``"timm:resnet18"`` and the like for a network of timm,
            with random weights (``TimmBackbone`` has pretrained ones, and other stages).
        primary: ``Primary``, or a module of your own (``Given``).
        layers: ``Conv``, ``Dense`` and ``Class``, or modules of your own (``Given``).
        head: from class capsules to logits: a name of ``HEADS``, or a module.
        decoder: a function from the number of class capsules, the size of their poses and the shape of an image to a
            decoder, such as ``FullyConnectedDecoder``; none if left out.
        num_iters: iterations in which all layers are routed together; left out, they are routed one after the other,
            each by its own routing.
        mode: ``"concurrent"`` or ``"sequential"``, as in ``concurrent_routing``.
        type_first: the order in which a grid becomes one set, as in ``flatten_grid``.

    Example:
        >>> from torchcaps.models import Conv, Dense
        >>> net = CapsuleNet(
        ...     image=(3, 16, 16),
        ...     backbone=nn.Conv2d(3, 8, 3, stride=2),
        ...     primary=Primary("layer_norm", caps=4, pose=(4, 4)),
        ...     layers=[Conv(4, (4, 4), 3, stride=2, routing="em"), Dense(10, (4, 4), routing="fm")],
        ... )
        >>> net(torch.zeros(2, 3, 16, 16)).logits.shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        *,
        image: Sequence[int],
        backbone: nn.Module | str,
        primary: Primary | Given,
        layers: Sequence[LayerSpec],
        head: str | nn.Module = "score",
        decoder: Callable[[int, int, tuple[int, int, int]], Decoder] | None = None,
        num_iters: int | None = None,
        mode: Mode = "concurrent",
        type_first: bool = False,
    ) -> None:
        super().__init__()
        if not layers:
            raise ValueError("a capsule network needs at least one layer of capsules; got none")
        self.image = tuple(image)
        self.num_iters, self.type_first = num_iters, type_first
        self.mode: Mode = mode
        self.backbone = find_backbone(backbone, self.image[0])
        features = _features(self.backbone, self.image)
        self.primary = primary.module if isinstance(primary, Given) else primary.build(features.shape[1])
        below = _primary_shape(self.primary, primary, features)
        self.accepts = self._accept(below, layers)
        self.layers = nn.ModuleList()
        for number, spec in enumerate(layers):
            try:
                layer, below = self._built(spec, below, features)
            except ValueError as error:
                raise ValueError(f"layer {number} on images of {self.image}: {error}") from error
            self.layers.append(layer)
        if below.grid is not None or below.caps is None:
            raise ValueError(f"the last layer returns {below}; class capsules are one set: end with Dense or Class")
        self.classes, self.class_pose = below.caps, below.pose_size
        self.head = _head(head, below.pose_size)
        self.decoder = None
        if decoder is not None:
            channels, height, width = self.image
            self.decoder = decoder(self.classes, self.class_pose, (channels, height, width))
        if num_iters is not None:
            self._steps()  # so that layers which cannot be routed together are found now

    def _accept(self, first: Shape, layers: Sequence[LayerSpec]) -> tuple[int | None, ...]:
        """The shape that inputs must have, ``None`` where any size will do: all sizes are fixed where weights belong
        to places of a grid; otherwise the grid is free, or the length of a sequence."""
        if first.grid is None:
            return (None, *self.image[1:])
        flattening = next((spec for spec in layers if isinstance(spec, Dense)), None)
        grid_ends_there = flattening is not None and not flattening.shared
        return self.image if grid_ends_there else (self.image[0], None, None)

    def _built(self, spec: LayerSpec, below: Shape, features: Tensor) -> tuple[nn.Module, Shape]:
        if not isinstance(spec, Given):
            return spec.build(below)
        example = self._as_set(spec.module, below.example(features))
        with torch.no_grad():
            pose = spec.module(example).pose
        grid = (pose.shape[1], pose.shape[2]) if pose.ndim == 5 else None
        return spec.module, Shape(pose.shape[-2], spec.pose, grid)

    def suited_loss(self, *, multi_label: bool = False) -> ClassificationLoss:
        """A new loss of the kind that the class capsules' routing learns from best (``Routing.suited_losses``).

        Args:
            multi_label: whether an example may have several classes.
        """
        kind = LOSSES[choose_loss(self.suited_losses, multi_label=multi_label)]
        return kind(decision="threshold") if multi_label else kind()

    @property
    def suited_losses(self) -> tuple[str, ...]:
        """Names of the losses that the class capsules' routing learns from, best first."""
        routing = getattr(self.layers[-1], "routing", None)
        return (routing if isinstance(routing, Routing) else Routing).suited_losses

    @property
    def routing_iterations(self) -> int | None:
        """Iterations of routing in the last layer; ``None`` where it does not iterate."""
        routing = getattr(self.layers[-1], "routing", None)
        own = routing.num_iters if isinstance(routing, Routing) and routing.iterates else None
        return self.num_iters or own

    def _as_set(self, layer: nn.Module, capsules: Capsules) -> Capsules:
        """A map of capsules as one set, for layers that take sets."""
        if isinstance(layer, DenseCapsules) and capsules.pose.ndim == 5:
            return flatten_grid(capsules, type_first=self.type_first)
        return capsules

    def first_capsules(self, inputs: Tensor, mask: Mask | None = None) -> Capsules:
        """The primary capsules of the inputs.

        Args:
            inputs: images, or hidden states of a sequence.
            mask: what of each sequence is there and what is padding.

        Returns:
            The primary capsules.
        """
        self._check(inputs)
        features = self.backbone(inputs)
        return self.primary(features) if mask is None else self.primary(features, mask)

    def stages(
        self,
        inputs: Tensor,
        mask: Mask | None = None,
        *,
        traces: Sequence[Trace] | None = None,
    ) -> list[Capsules]:
        """The capsules of every stage.

        Args:
            inputs: images, or hidden states of a sequence.
            mask: what of each sequence is there and what is padding.
            traces: one for each layer, filled with what their routings do.

        Returns:
            The primary capsules, then each layer's, the class capsules last.
        """
        stages = [self.first_capsules(inputs, mask)]
        if self.num_iters is not None:
            steps = self._steps(traces)
            return stages + concurrent_routing(stages[0], steps, num_iters=self.num_iters, mode=self.mode)
        for number, layer in enumerate(self.layers):
            options = {} if traces is None else {"trace": traces[number]}
            stages.append(layer(self._as_set(layer, stages[-1]), **options))
        return stages

    def forward(
        self,
        inputs: Tensor,
        mask: Mask | None = None,
        *,
        decode: Int[Tensor, "b"] | Int[Tensor, "b m"] | Literal["most_active"] | None = None,
    ) -> Prediction:
        """Logits and class capsules of a batch.

        Args:
            inputs: images, or hidden states of a sequence.
            mask: what of each sequence is there and what is padding.
            decode: which capsules the decoder shall make images of: a number for each example (its label, say), several
                numbers, or ``"most_active"``; none if left out.

        Returns:
            Logits, class capsules, and images if ``decode`` asks for them.
        """
        capsules = self._class_capsules(inputs, mask)
        logits = self.head(capsules)
        if decode is None:
            return Prediction(logits, capsules)
        if self.decoder is None:
            raise ValueError("this model has no decoder; create it with decoder=True")
        chosen = logits.argmax(-1) if isinstance(decode, str) else decode
        return Prediction(logits, capsules, self.decoder(capsules, chosen))

    def _class_capsules(self, inputs: Tensor, mask: Mask | None) -> Capsules:
        """The last of ``stages``, without what only the others need."""
        if self.num_iters is None:
            return self.stages(inputs, mask)[-1]
        primary = self.first_capsules(inputs, mask)
        (capsules,) = concurrent_routing(
            primary, self._steps(), num_iters=self.num_iters, mode=self.mode, last_only=True
        )
        return capsules

    def _steps(self, traces: Sequence[Trace] | None = None) -> list["_Step"]:
        return [
            _Step(self, layer, None if traces is None else traces[number]) for number, layer in enumerate(self.layers)
        ]

    def _check(self, inputs: Tensor) -> None:
        got = tuple(inputs.shape[1:])
        fits = len(got) == len(self.accepts) and all(
            wanted is None or size == wanted for size, wanted in zip(got, self.accepts, strict=True)
        )
        if not fits:
            wanted = ", ".join("any" if size is None else str(size) for size in self.accepts)
            raise ValueError(
                f"this model takes batches of ({wanted}); got a batch of shape {tuple(inputs.shape)}; create the model "
                f"with the sizes of your inputs"
            )


class _Step:
    """One layer's step, as concurrent routing wants it."""

    def __init__(self, net: CapsuleNet, layer: nn.Module, trace: Trace | None) -> None:
        if not isinstance(layer, CapsuleLayer) or not layer.routing.stepwise:
            name = type(layer.routing if isinstance(layer, CapsuleLayer) else layer).__name__
            raise ValueError(f"num_iters routes all layers together, step by step; one of them has {name}")
        self.net, self.layer, self.trace = net, layer, trace

    def __call__(self, children: Capsules, parents: Capsules | None) -> Capsules:
        return self.layer.step(self.net._as_set(self.layer, children), parents, trace=self.trace)


def _features(backbone: nn.Module, image: tuple[int, ...]) -> Tensor:
    """The backbone's output for one blank image, without a trace in its statistics."""
    parameter = next(backbone.parameters(), torch.zeros(()))
    training = backbone.training
    backbone.eval()
    try:
        with torch.no_grad():
            features = backbone(parameter.new_zeros(1, *image))
    except RuntimeError as error:
        raise ValueError(f"images of {image} do not fit the backbone: {error}") from error
    finally:
        backbone.train(training)
    if not isinstance(features, Tensor) or features.ndim != 4:
        got = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise ValueError(f"a backbone returns one feature map (b, channel, row, column); this one returned {got}")
    return features


def _primary_shape(module: nn.Module, spec: Primary | Given, features: Tensor) -> Shape:
    training = module.training
    module.eval()
    try:
        with torch.no_grad():
            pose = module(features).pose
    except RuntimeError as error:
        size = tuple(features.shape[-2:])
        raise ValueError(f"the primary capsules do not fit features of {size}; give larger images: {error}") from error
    finally:
        module.train(training)
    if pose.ndim == 5:
        return Shape(pose.shape[-2], spec.pose, (pose.shape[1], pose.shape[2]))
    return Shape(pose.shape[-2], spec.pose)


def _head(head: str | nn.Module, pose: int) -> nn.Module:
    if isinstance(head, nn.Module):
        return head
    if head not in HEADS:
        raise ValueError(f"no head {head!r}; there are {', '.join(map(repr, HEADS))}, or give a module")
    return HEADS[head](pose)
