"""One process or many: the same loop. ``torchrun`` starts many; each works on its share of every batch."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class World:
    """The processes that train together, seen from one of them."""

    device: torch.device
    rank: int = 0
    size: int = 1

    @property
    def main(self) -> bool:
        """Whether this is the process that speaks and writes."""
        return self.rank == 0

    def share(self, count: int) -> slice:
        """This process's part of so many examples; the parts differ by one at most, and may be empty."""
        each, left = divmod(count, self.size)
        start = self.rank * each + min(self.rank, left)
        return slice(start, start + each + (self.rank < left))

    def sum(self, *numbers: float | int) -> list[float | int]:
        """Each number's sum over all processes; whole numbers stay exact."""
        if self.size == 1:
            return list(numbers)
        tensor = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor)
        return tensor.tolist()

    def from_main(self, state: Any, tensors: Mapping[str, Tensor]) -> tuple[Any, dict[str, Tensor]]:
        """What the main process has (plain data and tensors), in every process; only it need have a disk."""
        if self.size == 1:
            return state, dict(tensors)
        shapes = {name: (str(tensor.dtype)[6:], list(tensor.shape)) for name, tensor in tensors.items()}
        state, shapes = json.loads(self._text_from_main(json.dumps([state, shapes])))
        received: dict[str, Tensor] = {}
        for name, (dtype, shape) in shapes.items():
            kind = getattr(torch, dtype)
            tensor = tensors[name].to(self.device) if self.main else torch.empty(shape, dtype=kind, device=self.device)
            dist.broadcast(tensor, 0)
            received[name] = tensor
        return state, received

    def _text_from_main(self, text: str) -> str:
        length = torch.tensor([len(text.encode()) if self.main else 0], device=self.device)
        dist.broadcast(length, 0)
        content = torch.empty(int(length), dtype=torch.uint8, device=self.device)
        if self.main:
            content.copy_(torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8))
        dist.broadcast(content, 0)
        return bytes(content.tolist()).decode()

    def wrap(self, module: nn.Module) -> nn.Module:
        """The module with gradients averaged over all processes."""
        if self.size == 1:
            return module
        return DistributedDataParallel(module, [self.device] if self.device.type == "cuda" else None)


def choose_device(wanted: str = "") -> torch.device:
    """The device asked for, or a GPU if there is one; under torchrun each process of a machine has its own."""
    name = wanted or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"no device {wanted!r}; write cpu, cuda or cuda:1") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"--device {wanted}: torch finds no CUDA here; use --device cpu")
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return device


@contextmanager
def join_processes(device: torch.device) -> Iterator[World]:
    """The processes that torchrun started, or this one alone."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World(device)
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield World(device, dist.get_rank(), size)
    finally:
        dist.destroy_process_group()


def is_restart() -> bool:
    """Whether torchrun started this process again after a failure."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def launch_name() -> str:
    """The name of torchrun's job, which stays the same when its processes are started again; empty if it has none."""
    name = os.environ.get("TORCHELASTIC_RUN_ID", "")
    return "" if name == "none" else name


def warnings_about(module: nn.Module, world: World) -> list[str]:
    """What a person should know before training with many processes."""
    if world.size == 1:
        return []
    said = []
    normed = any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in module.modules())
    if normed and world.device.type == "cpu":
        said.append(
            "this model has batch norm, whose statistics each process takes of its own share of a batch on CPUs; "
            "results differ from those of one process"
        )
    restarts = int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0"))
    if restarts and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        said.append(
            "restarts after a failure may hang as torchrun was started; "
            "start it with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 in its environment"
        )
    return said
