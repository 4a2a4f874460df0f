"""A capsule layer in a plain PyTorch loop: learn the digits that ship with torchcaps.

python examples/train_digits.py
python examples/train_digits.py --routing em
"""

import argparse

import torch
from torch import nn

import torchcaps as tc


class Network(nn.Module):
    """A convolution, primary capsules, and one capsule for each digit."""

    def __init__(self, routing: str) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 32, 9), nn.ReLU())
        self.parts = tc.SquashedPrimaryCapsules(32, out_caps=8, out_pose=8, kernel_size=9, stride=2)
        self.digits = tc.DenseCapsules(6 * 6 * 8, 8, 10, 16, routing=routing)

    def forward(self, images: torch.Tensor) -> tc.Capsules:
        return self.digits(tc.flatten_grid(self.parts(self.stem(images))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--routing", default="dynamic", choices=["dynamic", "em", "heinsen", "fm"])
    parser.add_argument("--small", action="store_true", help="a few steps, to see that it runs")
    options = parser.parse_args()
    torch.manual_seed(0)

    train, test = tc.data.load("mnist_sample", "train"), tc.data.load("mnist_sample", "test")
    network = Network(options.routing)
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    for epoch in range(1 if options.small else 4):
        rows = torch.randperm(len(train))[: 64 if options.small else len(train)]
        for batch in (train.batch(part) for part in rows.split(32)):
            loss = nn.functional.cross_entropy(network(batch.image).score, batch.label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            batch = test.batch(torch.arange(100 if options.small else len(test)))
            accuracy = (network(batch.image).score.argmax(-1) == batch.label).float().mean()
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}, {accuracy:.1%} of {len(batch.label)} test digits")


if __name__ == "__main__":
    main()
