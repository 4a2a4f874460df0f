"""How often a step of training makes the host wait for the device, and what goes where, found without a GPU."""

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.lab.training import tiny
from tests.models.reduced import capsule_net, inputs
from torchcaps.lab.explanation.distortions import attack
from torchcaps.lab.loaders import ModelBatch
from torchcaps.lab.recipes import Optimizer
from torchcaps.lab.tracing.traces import trace
from torchcaps.lab.training.batches import Batches, Order
from torchcaps.lab.training.distributed import World
from torchcaps.lab.training.examples import RecipeData
from torchcaps.lab.training.learner import Learner
from torchcaps.lab.training.optimizers import Rates
from torchcaps.models.base import device_of


class Looks(TorchDispatchMode):
    """Counts how often a number is read off a tensor by ``bool()``, ``float()`` or ``.item()``."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("grad_accum_steps", [1, 3])
def test_a_step_waits_once(grad_accum_steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = tiny.recipe(optimizer=Optimizer("sgd", lr=1e-2), grad_accum_steps=grad_accum_steps, clip=1.0)
    learner = Learner(recipe, World(torch.device("cpu")))
    batch = RecipeData(recipe).loader("train").batch(torch.arange(12))
    rows = torch.eye(10)[batch.label]  # class numbers are checked on CPUs, which reads them
    batch = batch._replace(target=rows, label=rows)
    lists = []
    original = Tensor.tolist
    monkeypatch.setattr(Tensor, "tolist", lambda self: lists.append(self.shape) or original(self))
    before = learner.model.state_dict()["layers.0.weight"].clone()
    with Looks() as looks:
        sums, finite = learner.learn(batch, 1, Rates(1e-2, 0.9))
    assert finite
    assert looks.count == 0
    assert len(lists) == 1
    assert sums.count == 12
    assert sums.loss > 0
    assert sums.correct == int(sums.correct)
    assert not torch.equal(before, learner.model.state_dict()["layers.0.weight"])


def test_batches_for_a_gpu_are_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = tiny.recipe()
    loader = RecipeData(recipe).loader("train")
    order = Order(len(loader), recipe.batch_size, recipe.seed)
    seen: list[Tensor] = []
    monkeypatch.setattr(Tensor, "pin_memory", lambda self: seen.append(self) or self)
    plain = Batches(loader, order, recipe.seed).at(0)
    assert not seen
    batch = Batches(loader, order, recipe.seed, pin=True).at(0)
    assert isinstance(batch, ModelBatch)
    assert len(seen) == sum(tensor is not None for tensor in (*batch.inputs, *batch[1:]))
    assert torch.equal(batch.inputs[0], plain.inputs[0])


@pytest.mark.parametrize("name", ["sabour2017_mnist", "hinton2018_smallnorb", "heinsen2019_smallnorb"])
def test_explanations_move_their_inputs_to_the_model(name: str) -> None:
    net = capsule_net(name)
    images = inputs(net, 2)
    net = net.to("meta")
    assert device_of(net).type == "meta"
    assert all(layer.couplings().device.type == "meta" for layer in trace(net, images))
    assert attack(net, images, torch.zeros(2, dtype=torch.long), eps=0.1).device.type == "meta"
