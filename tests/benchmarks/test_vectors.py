"""The opponents of vector routing come to the same in value and gradient."""

import pytest
import torch

from benchmarks import vector_cases
from tests.support import SINGLE_GRADIENT, SINGLE_VALUE, assert_near


@pytest.mark.parametrize("build", [True, False])
def test_plain_einsum_comes_to_the_same(build: bool) -> None:
    layer, vectors = vector_cases.make_layer((2, 7, 5, 3, 4))
    results = layer(vectors), vector_cases.vector_routing_einsum(layer, vectors, build=build)
    assert_near(*results, SINGLE_VALUE)
    inputs = [vectors, *layer.parameters()]
    ours, theirs = (torch.autograd.grad(found[..., 0].square().sum(), inputs) for found in results)
    for one, other in zip(ours, theirs, strict=True):
        assert_near(one, other, SINGLE_GRADIENT)


@pytest.mark.parametrize("name", vector_cases.VECTORS)
def test_every_case_names_its_opponents(name: str) -> None:
    case = vector_cases.VECTORS[name]()
    assert {target.opponent for target in case.targets} <= set(case.contenders)
