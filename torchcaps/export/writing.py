"""Models to ONNX files and to programs of ``torch.export``."""

import copy
import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from torchcaps.capsules import Capsules
from torchcaps.export.metadata import describe_model
from torchcaps.export.outputs import DecoderOutputs, LayerOutputs, ModelOutputs, Outputs, require_decoder
from torchcaps.export.runtime import need, open_session, run_session
from torchcaps.files import write_bytes
from torchcaps.models.base import Model

OPSET = 18
CLOSE = 1e-3  # largest difference from PyTorch, as a part of the largest number, that a new file may show
CHECKED = 3  # examples of that comparison; exporting takes two
AnyModule = TypeVar("AnyModule", bound=nn.Module)
NOISY = ("torch.onnx", "torch.export", "torch._dynamo", "onnxscript", "onnx_ir")


def to_onnx(
    model: nn.Module,
    path: str | Path,
    inputs: Capsules | Tensor | Sequence[Tensor] | None = None,
    *,
    couplings: bool = False,
    reconstruction: bool = False,
    dynamic: bool = True,
    opset: int = OPSET,
    check: bool = True,
    extra: Mapping[str, str] | None = None,
) -> None:
    """Write a model, or any module or layer, to one ONNX file that takes batches of any size.

    A model's file returns ``logits``, and if the model has class capsules ``poses`` and ``presences``; a layer's
    returns ``parent_pose``, ``parent_score`` and ``parent_variance`` as far as there are any. The metadata say what
    the classes are called, how images are prepared and where the model comes from, so that ``torchcaps.export.load``
    needs nothing else.

    Args:
        model: a model of the registry, one that ``torchcaps.load`` returned, or any module.
        path: the file to write.
        inputs: an example batch of at least two, for modules that do not know the shape of their inputs: capsules for a
            layer, else tensors.
        couplings: whether to return the couplings of every layer as well: ``couplings_1``, … ``(b, t, …, i, j)`` with
            one entry of ``t`` for each iteration. Where a routing has none, shares of agreement are in their place.
        reconstruction: whether to return the decoder's image of the likeliest class as well.
        dynamic: whether batches may have any size; if not, they have that of ``inputs``.
        opset: version of the ONNX operators.
        check: whether to run the file in onnxruntime and compare it with PyTorch before it gets its name.
        extra: more texts for the metadata, under the prefix ``torchcaps.``.

    Example:
        >>> import torchcaps as tc
        >>> to_onnx(tc.load("shipped"), "digits.onnx", couplings=True)  # doctest: +SKIP
    """
    prepared = _prepare(model, inputs, couplings=couplings, reconstruction=reconstruction, dynamic=dynamic)
    described = describe_model(model.module if isinstance(model, Outputs) else model, extra)
    _write(prepared if dynamic else replace(prepared, free=()), Path(path), described, opset, check)


def decoder_to_onnx(model: nn.Module, path: str | Path, *, opset: int = OPSET, check: bool = True) -> None:
    """Write a model's decoder to an ONNX file of its own: ``poses (b, k, d)`` of all class capsules and the number
    ``chosen (b,)`` of one of them in, its ``image (b, channel, row, column)`` out.

    Args:
        model: a model with a trained decoder.
        path: the file to write.
        opset: version of the ONNX operators.
        check: whether to run the file in onnxruntime and compare it with PyTorch before it gets its name.
    """
    decoder = require_decoder(model)
    poses = torch.randn(CHECKED, decoder.in_caps, decoder.in_pose, generator=torch.Generator().manual_seed(0))
    chosen = torch.arange(CHECKED) % decoder.in_caps
    prepared = _Prepared(DecoderOutputs(_for_export(decoder)), {"poses": poses, "chosen": chosen})
    _write(prepared, Path(path), describe_model(model), opset, check)


def to_torch(
    model: nn.Module,
    path: str | Path,
    inputs: Capsules | Tensor | Sequence[Tensor] | None = None,
    *,
    couplings: bool = False,
    reconstruction: bool = False,
    extra: Mapping[str, str] | None = None,
) -> None:
    """Write a model as a program that ``torch.export.load`` reads, with the outputs of ``to_onnx`` in the same order.

    The metadata are in the archive's extra files, each under its key.

    Args:
        model: a model of the registry, one that ``torchcaps.load`` returned, or any module.
        path: the file to write, usually ending in ``.pt2``.
        inputs: an example batch of at least two, for modules that do not know the shape of their inputs.
        couplings: whether to return the couplings of every layer and iteration as well.
        reconstruction: whether to return the decoder's image of the likeliest class as well.
        extra: more texts for the metadata, under the prefix ``torchcaps.``.
    """
    prepared = _prepare(model, inputs, couplings=couplings, reconstruction=reconstruction)
    described = describe_model(model, extra)
    with _quietly():
        program = _trace(prepared)
        described["outputs"] = " ".join(prepared.output_names())
        archive = io.BytesIO()
        torch.export.save(program, archive, extra_files=described)
    write_bytes(Path(path), archive.getvalue())


@dataclass(frozen=True)
class _Prepared:
    """A module for the exporter, and an example batch by the names of its inputs."""

    module: Outputs
    inputs: dict[str, Tensor]
    free: tuple[str, ...] = ("batch",)  # axes of any size, the first ones of every input

    def first(self, count: int) -> tuple[Tensor, ...]:
        """Some of the examples, or all where the size of the batch is fixed."""
        if not self.free:
            return tuple(self.inputs.values())
        return tuple(tensor[:count] for tensor in self.inputs.values())

    @torch.no_grad()
    def output_names(self) -> list[str]:
        return list(self.module.compute(*self.first(1)))


def _prepare(
    model: nn.Module,
    inputs: Capsules | Tensor | Sequence[Tensor] | None,
    *,
    couplings: bool,
    reconstruction: bool,
    dynamic: bool = True,
) -> _Prepared:
    if inputs is None:
        if not isinstance(model, Model):
            raise ValueError(
                f"a {type(model).__name__} does not know the shape of its inputs; give an example batch as inputs="
            )
        module = ModelOutputs(_for_export(model), couplings=couplings, reconstruction=reconstruction)
        images = torch.rand(CHECKED, *model.image, generator=torch.Generator().manual_seed(0))
        if not takes_sequences(model):
            return _Prepared(module, {"inputs": images})
        mask = torch.ones(CHECKED, images.shape[1], dtype=torch.bool)
        mask[1:, -1] = False
        return _Prepared(module, {"inputs": images, "mask": mask}, ("batch", "token"))
    if couplings or reconstruction:
        raise ValueError("couplings and reconstruction are of models, which know their inputs; leave inputs out")
    if isinstance(inputs, Capsules):
        named = {name: part for name, part in inputs._asdict().items() if part is not None}
        module = LayerOutputs(_for_export(model))
    else:
        tensors = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
        named = {"inputs" if len(tensors) == 1 else f"input_{n}": part for n, part in enumerate(tensors, 1)}
        module = _for_export(model if isinstance(model, Outputs) else Outputs(model))
    sizes = {len(part) for part in named.values()}
    if len(sizes) != 1 or min(sizes) < (2 if dynamic else 1):
        raise ValueError(f"the example batch has {sorted(sizes)} examples; give two or more, as many in every tensor")
    return _Prepared(module, {name: part.detach().cpu().float() for name, part in named.items()})


def _for_export(model: AnyModule) -> AnyModule:
    """A copy in single precision, on the CPU and as evaluation has it: what a file of numbers is made from."""
    return copy.deepcopy(model).cpu().float().eval()


def takes_sequences(model: Model) -> bool:
    """Whether inputs are hidden states of any number of tokens, with a mask; images have a fixed size in files."""
    return getattr(model, "accepts", model.image)[0] is None


def _trace(prepared: _Prepared) -> torch.export.ExportedProgram:
    # A size of 1 or 2 in the example must not become a constant of the program.
    free = torch.export.Dim.DYNAMIC
    shapes = tuple(
        dict.fromkeys(range(min(tensor.ndim, len(prepared.free))), free) for tensor in prepared.inputs.values()
    )
    try:
        with torch.no_grad():
            return torch.export.export(prepared.module, prepared.first(2), dynamic_shapes=(shapes,), strict=False)
    except RuntimeError as error:  # the errors of tracing are RuntimeErrors of many kinds
        said = " ".join(str(error).split())[:300]
        raise ValueError(f"torch.export cannot trace this {type(prepared.module.module).__name__}: {said}") from error


def _write(prepared: _Prepared, path: Path, described: Mapping[str, str], opset: int, check: bool) -> None:
    for package in ("onnx", "onnxscript", *(("onnxruntime",) if check else ())):
        need(package, "exporting to ONNX")
    with _quietly():
        program = _trace(prepared)
        exported: Any = torch.onnx.export(
            program,
            input_names=list(prepared.inputs),
            output_names=prepared.output_names(),
            opset_version=opset,
            dynamo=True,
            verbose=False,
        )
        file = exported.model_proto
    _name_axes(file, prepared)
    from torchcaps import __version__

    file.producer_name, file.producer_version = "torchcaps", __version__
    del file.metadata_props[:]
    for node in file.graph.node:  # stack traces of whoever exported
        del node.metadata_props[:]
    for key, text in sorted(described.items()):
        file.metadata_props.add(key=key, value=text)
    content = file.SerializeToString()
    if check:
        _compare(content, prepared, path)
    write_bytes(path, content)


def _name_axes(file: Any, prepared: _Prepared) -> None:
    """Call the free axes by what they are."""
    for value in file.graph.input:
        for axis, name in zip(value.type.tensor_type.shape.dim, prepared.free, strict=False):
            axis.dim_param = name
    for value in file.graph.output if prepared.free else ():
        value.type.tensor_type.shape.dim[0].dim_param = prepared.free[0]


def _compare(content: bytes, prepared: _Prepared, path: Path) -> None:
    """Run a new file on one example and on all, and hold it to what PyTorch has."""
    session = open_session(content, str(path))
    for count in (1, CHECKED) if prepared.free else (CHECKED,):
        given = prepared.first(count)
        with torch.no_grad():
            expected = prepared.module.compute(*given)
        named = {name: tensor.numpy() for name, tensor in zip(prepared.inputs, given, strict=True)}
        found = run_session(session, named, str(path))
        for (name, wanted), ours in zip(expected.items(), found, strict=True):
            error = float((torch.from_numpy(ours) - wanted).abs().max() / wanted.abs().max().clamp_min(1e-6))
            if not error <= CLOSE:
                raise ValueError(
                    f"{path} was not written: onnxruntime's {name} differ from PyTorch's by {error:.1e} of the largest "
                    f"for {count} examples; please report this model"
                )


@contextmanager
def _quietly() -> Iterator[None]:
    """Without what the exporters print, log and warn of: none of it is of use to whoever exports a model of ours."""
    levels = {name: logging.getLogger(name).level for name in NOISY}
    try:
        for name in NOISY:
            logging.getLogger(name).setLevel(logging.ERROR)
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
