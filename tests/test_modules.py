"""What PyTorch users expect of every module: device and dtype, reset_parameters, a repr that can be read."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn

import torchcaps as tc
from torchcaps import backbones, decoders, heads

MAKERS: dict[str, Callable[..., nn.Module]] = {
    **{f"dense-{name}": partial(tc.DenseCapsules, 5, (2, 3), 4, (2, 3), name) for name in tc.routing.ROUTINGS},
    "dense-open": partial(tc.DenseCapsules, None, 6, None, 6, "heinsen", vote_norm="component"),
    "dense-learned": partial(tc.DenseCapsules, 5, 6, 4, 6, "dynamic", bias=True, vote_norm="pair"),
    "conv": partial(tc.ConvCapsules, 2, (2, 2), 3, (2, 2), (3, 2), 2, "em", padding=1, bias=True),
    "class": partial(tc.ClassCapsules, 2, (2, 2), 3, (2, 2), "inverted_attention"),
    "squashed": partial(tc.SquashedPrimaryCapsules, 3, 2, 4, kernel_size=(3, 2)),
    "matrix": partial(tc.MatrixPrimaryCapsules, 3, 2),
    "normalized-score": partial(tc.NormalizedScorePrimaryCapsules, 3, 2),
    "layer-norm": partial(tc.LayerNormPrimaryCapsules, 3, 2, scored=True),
    "normalized": partial(tc.NormalizedPrimaryCapsules, 3, 2, kernel_size=(3, 5)),
    "depthwise": partial(tc.DepthwisePrimaryCapsules, 4, 2, (2, 2), kernel_size=(3, 2)),
    "linear-head": partial(heads.LinearHead, 6),
    "fully-connected": partial(decoders.FullyConnectedDecoder, 3, 4, (1, 8, 8), hidden=(5,)),
    "deconvolution": partial(decoders.DeconvolutionDecoder, 3, 4, (1, 8, 8), width=4),
    "upsampling": partial(decoders.UpsamplingDecoder, 3, 4, (1, 16, 8), widths=(2, 3, 2)),
    "stack": partial(backbones.ConvStack, 3, [(4, (3, 2), 1), (5, 2, 2)], norm="instance", norm_range=0.05),
    "stem": partial(backbones.ConvStem, 3, 4, (3, 2), batch_norm=True),
    "swish": partial(backbones.SwishStack, 3, 4, depth=2),
    "residual": partial(backbones.ResidualBlock, 3, 4, stride=2),
    "trunk": partial(backbones.tsai_resnet, width=4, out_channels=8),
    "resnet18": partial(backbones.resnet18_trunk, width=2),
    "preactivated": partial(backbones.PreactivatedBlock, 3, 4),
    "resnet-v2": partial(backbones.ResNetV2, 3, blocks=1, width=2),
}
every_module = pytest.mark.parametrize("name", MAKERS)


@every_module
def test_device_and_dtype_are_those_asked_for(name: str) -> None:
    module = MAKERS[name](device="meta", dtype=torch.float64)
    tensors = [*module.parameters(), *(buffer for buffer in module.buffers() if buffer.is_floating_point())]
    assert tensors
    assert all(tensor.is_meta and tensor.dtype == torch.float64 for tensor in tensors)


@every_module
def test_reset_parameters_draws_what_a_new_module_has(name: str) -> None:
    module = MAKERS[name]()
    with torch.no_grad():
        for tensor in module.state_dict().values():
            tensor.fill_(7)
    torch.manual_seed(3)
    fresh = MAKERS[name]().state_dict()
    torch.manual_seed(3)
    reset = getattr(module, "reset_parameters")  # noqa: B009
    reset()
    for key, tensor in module.state_dict().items():
        assert torch.equal(tensor, fresh[key]), key


@pytest.mark.parametrize(
    ("name", "shown"),
    {
        "conv": "ConvCapsules(\n  in_caps=2, in_pose=(2, 2), out_caps=3, out_pose=(2, 2), bias=True, "
        "kernel_size=(3, 2), stride=(2, 2), padding=(1, 1), competition='image'\n  (routing): EMRouting(num_iters=3, ",
        "class": "in_caps=2, in_pose=(2, 2), out_caps=3, out_pose=(2, 2), bias=False, coordinates=True",
        "dense-open": "in_caps=None, in_pose=6, out_caps=None, out_pose=6, bias=True",
        "squashed": "out_caps=2, out_pose=4, squash='rational'",
        "depthwise": "out_caps=2, out_pose=(2, 2), squash='exponential'",
        "fully-connected": "in_caps=3, in_pose=4, image_shape=(1, 8, 8)",
    }.items(),
)
def test_a_repr_shows_sizes_and_options(name: str, shown: str) -> None:
    assert shown in repr(MAKERS[name]())


def test_losses_show_their_options() -> None:
    assert repr(tc.losses.SpreadLoss(0.5)) == "SpreadLoss(margin=0.5)"
    assert "upper=0.9, lower=0.1, absent=0.5, on='presence'" in repr(tc.losses.MarginLoss())
    assert repr(tc.losses.BinaryCrossEntropyLoss()) == "BinaryCrossEntropyLoss(decision='threshold', threshold=0.5)"
