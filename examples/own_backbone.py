"""Two layers of capsules on a backbone of your own: convolutional capsules, then class capsules, on color images.

python examples/own_backbone.py
"""

import argparse

import torch
from torch import nn

import torchcaps as tc


def make_backbone(width: int) -> nn.Sequential:
    """Any module from images to a feature map will do: a pretrained network without its classifier, for example."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3, stride=2, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a narrow network and one step")
    options = parser.parse_args()
    torch.manual_seed(0)

    width, capsules, pose = (8, 2, (4, 4)) if options.small else (32, 8, (4, 4))
    network = nn.Sequential(
        make_backbone(width),
        tc.MatrixPrimaryCapsules(2 * width, capsules, pose),
        tc.ConvCapsules(capsules, pose, capsules, pose, 3, 2, routing=tc.routing.EMRouting(num_iters=2)),
        tc.ClassCapsules(capsules, pose, 2, pose, routing=tc.routing.EMRouting(num_iters=2)),
    )
    print(network)
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for step in range(1 if options.small else 100):
        # Is the left half brighter, or the right one?
        images, labels = torch.rand(32, 3, 32, 32), torch.randint(2, (32,))
        side = labels[:, None] == torch.tensor([0, 1])
        images *= 0.6 + 0.4 * side.repeat_interleave(16, 1)[:, None, None].float()
        loss = nn.functional.cross_entropy(network(images).score, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0 or options.small:
            print(f"step {step}: loss {loss.item():.3f}")
    for size in (32, 48):  # grids of any size
        print(f"images of {size}×{size}:", network(torch.rand(1, 3, size, size)).score.shape)


if __name__ == "__main__":
    main()
