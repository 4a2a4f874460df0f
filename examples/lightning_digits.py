"""A capsule network trained by Lightning: the layers are plain modules.

pip install lightning
python examples/lightning_digits.py
"""

import argparse
from typing import Any

import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset

import torchcaps as tc


class LitCapsules(L.LightningModule):
    """A network of torchcaps, with the loss that suits its routing."""

    def __init__(self, routing: str = "dynamic") -> None:
        super().__init__()
        self.network: Any = tc.models.create("comparison", routing=routing)
        self.loss = self.network.suited_loss()

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        images, labels = batch
        return self.loss(self.network(images).logits, labels, step=self.global_step)

    def test_step(self, batch: Any, number: int) -> None:
        images, labels = batch
        self.log("accuracy", (self.network(images).logits.argmax(-1) == labels).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def load(split: str, most: int) -> DataLoader[Any]:
    digits = tc.data.load("mnist_sample", split)
    batch = digits.batch(torch.arange(min(most, len(digits))))
    return DataLoader(TensorDataset(batch.image, batch.label), batch_size=50, shuffle=split == "train")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a few steps, to see that it runs")
    small = parser.parse_args().small
    L.seed_everything(0)
    options: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": not small}
    trainer = L.Trainer(max_epochs=1 if small else 8, enable_model_summary=False, **options)
    module = LitCapsules()
    trainer.fit(module, load("train", 100 if small else 5000))
    found = trainer.test(module, load("test", 100 if small else 1000), verbose=False)
    print(f"{found[0]['accuracy']:.1%} of the test digits")


if __name__ == "__main__":
    main()
