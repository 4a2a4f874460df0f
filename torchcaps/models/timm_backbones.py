"""Backbones of timm (github.com/huggingface/pytorch-image-models) below capsules, by name."""

import importlib
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps.extras import explain_missing
from torchcaps.typed import show, suggest

PREFIX = "timm:"


class TimmBackbone(nn.Module):
    """A network of timm without its classifier: from images to the feature map of one of its stages.

    It needs ``pip install 'torchcaps[timm]'``. ``CapsuleNet(backbone="timm:resnet18")`` makes one without pretrained
    weights, for the channels of its images.

    Args:
        name: name of the network (``timm.list_models()``).
        in_channels: channels of the images.
        pretrained: download timm's weights; random ones otherwise.
        stage: which of its feature maps: -1 is the last and smallest, -2 the one before.

    Shape:
        - images: ``(b, in_channels, row, column)`` to ``(b, out_channels, row', column')``.

    Returns:
        The features.

    Example:
        >>> TimmBackbone("resnet18", stage=-2)(torch.zeros(1, 3, 64, 64)).shape  # doctest: +SKIP
        torch.Size([1, 256, 4, 4])
    """

    def __init__(self, name: str, *, in_channels: int = 3, pretrained: bool = False, stage: int = -1) -> None:
        super().__init__()
        timm = import_timm()
        if not timm.is_model(name):
            meant = suggest(name, timm.list_models(), "timm.list_models() names all")
            raise ValueError(f"timm has no model {show(name)}; {meant}")
        self.name, self.stage = name, stage
        options = {"features_only": True, "out_indices": (stage,), "in_chans": in_channels}
        try:
            self.network = timm.create_model(name, pretrained=pretrained, **options)
        except OSError as error:
            raise ConnectionError(
                f"no weights of timm's {name} to be had: {error}; pretrained=False needs none"
            ) from error
        except (RuntimeError, AssertionError, IndexError, TypeError) as error:
            raise ValueError(f"timm's {name} gives no feature map of stage {stage}: {error}") from error
        self.out_channels = int(self.network.feature_info.channels()[-1])
        self.channels_last = str(getattr(self.network, "output_fmt", "")).endswith("NHWC")

    def extra_repr(self) -> str:
        return f"{self.name!r}, stage={self.stage}, out_channels={self.out_channels}"

    def forward(self, images: Float[Tensor, "b channel row column"]) -> Float[Tensor, "b feature y x"]:
        (features,) = self.network(images)
        return rearrange(features, "b y x feature -> b feature y x") if self.channels_last else features


def find_backbone(given: nn.Module | str, channels: int) -> nn.Module:
    """A module as it is, or the network of timm that ``"timm:NAME"`` means, for images of so many channels."""
    if isinstance(given, nn.Module):
        return given
    if not isinstance(given, str) or not given.startswith(PREFIX):
        raise ValueError(f"backbone is {show(given)}; expected a module, or 'timm:NAME' such as 'timm:resnet18'")
    return TimmBackbone(given.removeprefix(PREFIX), in_channels=channels)


def import_timm() -> Any:
    """timm, or an error that says what is missing. timm imports torchvision, whose operators fit one build of torch."""
    try:
        return importlib.import_module("timm")
    except ModuleNotFoundError as error:
        raise ImportError(explain_missing(error, "a backbone of timm") or str(error), name=error.name) from error
    except (RuntimeError, ImportError, OSError) as error:
        raise ImportError(
            f"timm needs torchvision, which does not work with torch {torch.__version__} here ({error}); install torch "
            f"and torchvision of one build, such as both from https://download.pytorch.org/whl/cpu",
            name="torchvision",
        ) from error
