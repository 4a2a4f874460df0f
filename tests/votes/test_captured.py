"""A route that reaches tensors in another way than through its arguments is refused: they would get no gradient."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from tests.support import numbers
from torchcaps.votes import dense_votes, tensor_votes
from torchcaps.votes.built import BlockVotes

ANYWHERE = torch.ones(3, requires_grad=True)
CONSTANT = torch.ones(3)
VOTES = tensor_votes(numbers(2, 7, 3, 4))


def routed(votes: BlockVotes, factor: "Tensor | nn.Parameter") -> tuple[Tensor]:
    return (factor[:, None] * votes.mix(votes.compete_evenly()),)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(3))

    def route(self, votes: BlockVotes) -> tuple[Tensor]:
        return routed(votes, self.factor)


def in_a_closure():
    factor = torch.ones(3, requires_grad=True)
    return lambda votes: routed(votes, factor)


def in_a_list():
    factors = [torch.ones(3), torch.ones(3, requires_grad=True)]
    return lambda votes: routed(votes, factors[1])


def in_a_module():
    layer = Scaled()
    return lambda votes: routed(votes, layer.factor)


def in_self():
    return Scaled().route


def in_a_partial():
    return partial(routed, factor=torch.ones(3, requires_grad=True))


def in_a_global():
    return lambda votes: routed(votes, ANYWHERE)


@pytest.mark.parametrize("capture", [in_a_closure, in_a_list, in_a_module, in_self, in_a_partial, in_a_global])
def test_a_captured_tensor_is_an_error_that_says_what_to_do(capture) -> None:
    with pytest.raises(ValueError, match=r"captures .* no gradient; take it as an argument .*shared=\["):
        VOTES.run(capture())
    with torch.no_grad():  # nothing is lost there
        VOTES.run(capture())


def test_what_wants_no_gradient_may_be_captured() -> None:
    constant = torch.ones(3)
    VOTES.run(lambda votes: routed(votes, constant))
    VOTES.run(lambda votes: routed(votes, CONSTANT))


def test_an_argument_gets_its_gradient() -> None:
    factor = torch.ones(3, dtype=torch.float64, requires_grad=True)
    votes = dense_votes(numbers(2, 7, 5), numbers(7, 3, 5, 4))
    votes.run(routed, shared=[factor])[0].sum().backward()
    assert factor.grad is not None
    assert bool((factor.grad != 0).all())
