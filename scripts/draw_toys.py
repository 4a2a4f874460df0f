"""Draw docs/toys.png: every toy once, each from another side, under one of the six lightings."""

from pathlib import Path

import matplotlib.image
import torch
from einops import rearrange

from torchcaps.data.toys import CATEGORIES, build_toy, photograph


def main() -> None:
    rows = [
        torch.stack(
            [
                photograph(build_toy(category, k), elevations=(k % 4,), azimuths=(5 * k % 18,), lightings=(k % 6,))
                for k in range(10)
            ]
        )
        for category in CATEGORIES
    ]
    left = torch.stack(rows)[:, :, 0, 0, 0, 0]  # the left eye's pictures
    sheet = rearrange(left, "category toy row column -> (category row) (toy column)")
    target = Path(__file__).resolve().parent.parent / "docs" / "toys.png"
    matplotlib.image.imsave(target, sheet.numpy(), cmap="gray", vmin=0, vmax=255)


if __name__ == "__main__":
    main()
