"""A capsule network trained with Accelerate, on whatever devices there are: the layers are plain modules.

pip install accelerate
accelerate launch examples/accelerate_digits.py
"""

import argparse
from typing import Any

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

import torchcaps as tc


def load(split: str, most: int) -> DataLoader[Any]:
    digits = tc.data.load("mnist_sample", split)
    batch = digits.batch(torch.arange(min(most, len(digits))))
    return DataLoader(TensorDataset(batch.image, batch.label), batch_size=50, shuffle=split == "train")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--routing", default="em", help="any routing")
    parser.add_argument("--small", action="store_true", help="a few steps, to see that it runs")
    options = parser.parse_args()
    torch.manual_seed(0)
    accelerator = Accelerator()
    network: Any = tc.models.create("comparison", routing=options.routing)
    loss = network.suited_loss()
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    train, test = load("train", 100 if options.small else 5000), load("test", 100 if options.small else 1000)
    network, optimizer, train, test = accelerator.prepare(network, optimizer, train, test)
    for epoch in range(1 if options.small else 8):
        network.train()
        for images, labels in train:
            optimizer.zero_grad()
            accelerator.backward(loss(network(images).logits, labels))
            optimizer.step()
        network.eval()
        found = []
        with torch.no_grad():
            for images, labels in test:
                found.append(accelerator.gather_for_metrics(network(images).logits.argmax(-1) == labels))
        accelerator.print(f"epoch {epoch + 1}: {torch.cat(found).float().mean():.1%} of the test digits")


if __name__ == "__main__":
    main()
