"""A routing of your own: its function, its reference, and the tests that every routing of torchcaps passes.

python examples/own_routing.py
"""

import argparse

import torch
from torch import Tensor

import torchcaps as tc
from torchcaps.routing import Routing, Trace
from torchcaps.testing import check_routing
from torchcaps.votes import Votes, tensor_votes


class ThresholdRouting(Routing):
    """A child goes to the parents that its vote agrees with more than with the average parent."""

    title = "threshold"
    reads_scores = False
    suited_losses = ("cross_entropy",)

    def __init__(self, num_iters: int = 2) -> None:
        super().__init__()
        self.num_iters = num_iters

    def forward(self, votes: Votes | Tensor, score: Tensor | None = None, *, trace: Trace | None = None) -> tc.Capsules:
        operator, num_iters = tensor_votes(votes), self.num_iters

        def route(block):
            coupling = block.compete_evenly()
            for iteration in range(num_iters):
                mean = block.mix(coupling)
                if trace is not None:
                    trace.record(operator, coupling, mean, mean.square().sum(-1))
                if iteration < num_iters - 1:
                    agreement = block.agreement(mean)
                    coupling = block.compete(4.0 * torch.tanh(agreement - agreement.mean(-1, keepdim=True)))
            return mean, mean.square().sum(-1)

        return tc.Capsules(*operator.run(route, whole=trace is not None))


def refer_threshold(votes: Tensor, score: Tensor) -> tuple[Tensor, Tensor]:
    """The same in plain operations."""
    mean = votes.sum(1) / votes.shape[2]
    agreement = torch.einsum("bijp,bjp->bij", votes, mean)
    coupling = (4.0 * torch.tanh(agreement - agreement.mean(-1, keepdim=True))).softmax(-1)
    mean = torch.einsum("bij,bijp->bjp", coupling, votes)
    return mean, mean.square().sum(-1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="without the network")
    options = parser.parse_args()
    torch.manual_seed(0)
    check_routing(ThresholdRouting, refer_threshold)
    print("does what its reference does, in value and gradient")
    layer = tc.DenseCapsules(6, 8, 3, 4, routing=ThresholdRouting)
    print(layer, layer(tc.Capsules(torch.randn(2, 6, 8))).pose.shape, sep="\n")
    if not options.small:
        model = tc.models.create("sabour2017_mnist", routing=ThresholdRouting)
        print(model(torch.rand(2, 1, 28, 28)).logits.shape)


if __name__ == "__main__":
    main()
