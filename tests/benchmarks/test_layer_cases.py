"""Contenders for layers by every routing compute the same, gradients included."""

from collections.abc import Iterator

import pytest
import torch

from benchmarks import layer_cases
from benchmarks.cases import OURS, Case
from torchcaps.routing import ROUTINGS


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def assert_equal_work(case: Case) -> None:
    ours, *others = (make()() for make in case.contenders.values())
    assert isinstance(ours, tuple)
    for other in others:
        assert isinstance(other, tuple)
        for one, two in zip(ours, other, strict=True):
            if one is not None or two is not None:
                torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ROUTINGS)
def test_dense_layers(name: str):
    """The results that plain einsum is held to are those of the small cases; here, that sizes and names arrive."""
    case = layer_cases.make_dense_case(name, examples=3, children=20)
    assert list(case.contenders) == [OURS, layer_cases.EINSUM]
    assert_equal_work(case)


@pytest.mark.parametrize("name", ROUTINGS)
def test_layers_on_a_tensor_of_votes(name: str):
    assert_equal_work(layer_cases.make_layer_case(name, (3, 20, 4, 3, 4)))


@pytest.mark.parametrize("name", ROUTINGS)
def test_convolutions(name: str):
    assert_equal_work(layer_cases.make_conv_case(name, (2, 7, 2, 3, 2)))


def test_all_routings_are_measured_or_those_that_are_named():
    assert len(layer_cases.list_layers()) == 2 * len(ROUTINGS)
    assert list(layer_cases.list_layers(("dynamic",))) == ["dynamic"]
