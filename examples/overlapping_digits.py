"""Two digits on top of each other: a capsule network says which two, and decodes each of them alone.

python examples/overlapping_digits.py        # some minutes; writes overlapping-digits.png
"""

import argparse

import matplotlib.pyplot as plt
import torch

import torchcaps as tc


def draw(images: torch.Tensor, decoded: torch.Tensor, digits: torch.Tensor) -> None:
    """Each pair of digits above what the capsules of the two digits decode to."""
    figure, panels = plt.subplots(3, len(images), figsize=(1.3 * len(images), 4), layout="constrained")
    for column, (image, parts, names) in enumerate(zip(images, decoded, digits, strict=True)):
        pictures, titles = [image, *parts], ["", *map(str, names.tolist())]
        for panel, picture, title in zip(panels[:, column], pictures, titles, strict=True):
            panel.imshow(picture[0].numpy(), cmap="gray", vmin=0, vmax=1)
            panel.set_title(title)
            panel.set_axis_off()
    figure.savefig("overlapping-digits.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a narrow network and two steps")
    options = parser.parse_args()
    torch.manual_seed(0)

    pairs = tc.data.load("multimnist:mnist_sample", "train")  # made on the fly, from the digits that ship
    width = {"stem_channels": 8, "primary_caps": 2} if options.small else {"stem_channels": 48, "primary_caps": 8}
    model = tc.models.create("sabour2017_multimnist", **width)
    loss_function = tc.losses.MarginLoss(decision="two_most_active")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(2 if options.small else 1500):
        batch = pairs.batch(torch.randint(len(pairs), (4 if options.small else 32,)))
        prediction = model(batch.image, decode=batch.metadata["digits"])
        # Each digit is decoded from its own capsule, and compared with that digit alone.
        error = tc.losses.reconstruction_loss(prediction.reconstruction, batch.metadata["parts"].unsqueeze(2))
        loss = loss_function(prediction.logits, batch.label) + error
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            found = loss_function.correct(prediction.logits, batch.label).float().mean()
            print(f"step {step}: loss {loss.item():.3f}, both digits found in {found:.0%} of the images")

    test = tc.data.load("multimnist:mnist_sample", "test").batch(torch.arange(2 if options.small else 6))
    with torch.no_grad():
        digits = model(test.image).logits.topk(2).indices
        draw(test.image, model(test.image, decode=digits).reconstruction, digits)


if __name__ == "__main__":
    main()
