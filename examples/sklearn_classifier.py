"""A capsule network and a support vector machine on the digits that ship with torchcaps, as scikit-learn estimators.

pip install 'torchcaps[sklearn]'
python examples/sklearn_classifier.py
"""

import argparse
from collections.abc import Sequence

import numpy as np
import torch
from sklearn.svm import SVC

import torchcaps as tc
from torchcaps.sklearn import CapsuleClassifier

Arrays = tuple[np.ndarray, np.ndarray]


def load_digits(split: str, most: int) -> Arrays:
    """Images (n, 28, 28) from 0 to 1, and their labels."""
    digits = tc.data.load("mnist_sample", split)
    batch = digits.batch(torch.arange(min(most, len(digits))))
    return batch.image[:, 0].numpy(), batch.label.numpy()


def compare(train: Arrays, test: Arrays, epochs: float, seed: int = 0, verbose: bool = False) -> dict[str, float]:
    """Test accuracies of both, each trained on the same images."""
    (images, labels), (test_images, test_labels) = train, test
    machine = SVC(C=10.0)
    machine.fit(images.reshape(len(images), -1), labels)  # a support vector machine takes flat rows
    network = CapsuleClassifier(
        routing="dynamic",
        transforms={"pad": 2, "rotation": 10.0},  # random shifts and rotations, in training only
        epochs=epochs,
        random_state=seed,
        verbose=verbose,
    )
    network.fit(images, labels)
    return {
        "support vector machine": machine.score(test_images.reshape(len(test_images), -1), test_labels),
        "capsule network": network.score(test_images, test_labels),
    }


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=float, default=12.0, help="passes over the training images (default: 12)")
    parser.add_argument("--small", action="store_true", help="few images and one pass, to see that it runs")
    options = parser.parse_args(arguments)
    train, test = load_digits("train", 128 if options.small else 5000), load_digits("test", 1000)
    found = compare(train, test, 1.0 if options.small else options.epochs, verbose=not options.small)
    for name, accuracy in found.items():
        print(f"{name:<24}{accuracy:.1%} of {len(test[1]):,} test images")
    return found


if __name__ == "__main__":
    main()
