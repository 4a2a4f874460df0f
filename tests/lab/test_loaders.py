"""Images as a recipe prepares them."""

from dataclasses import replace

import pytest
import torch
from torch import Generator, Tensor

import torchcaps.lab.recipes as recipes
from torchcaps.data import ArrayDataset, load
from torchcaps.lab.loaders import CROPS, ImageLoader
from torchcaps.lab.recipes import Transforms
from torchcaps.lab.training.batches import Batches, Order
from torchcaps.lab.training.examples import RecipeData

SOME = torch.arange(6)


def seeded(seed: int = 0) -> Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def numbered() -> ArrayDataset:
    """Images whose pixels say where they were: 10 × row + column, as parts of 255."""
    picture = (10 * torch.arange(8)[:, None] + torch.arange(8)).to(torch.uint8)
    return ArrayDataset("numbered", "train", ("a", "b", "c"), picture.expand(6, 1, 8, 8), torch.arange(6) % 3)


def corners(images: Tensor) -> list[tuple[int, int]]:
    first = (images[:, 0, 0, 0] * 255).round().long().tolist()
    return [divmod(pixel, 10) for pixel in first]


def test_evaluation_is_the_same_every_time_and_has_the_middle(numbered):
    loader = ImageLoader(numbered, Transforms(crop=4, flip=True, rotation=20.0, brightness=0.5, mixup=1.0))
    assert corners(loader.batch(SOME).inputs[0]) == [(2, 2)] * 6
    assert torch.equal(loader.batch(SOME).target, SOME % 3)


def test_training_crops_anywhere_as_the_generator_says(numbered):
    loader = ImageLoader(numbered, Transforms(crop=4))
    many = {corner for seed in range(30) for corner in corners(loader.batch(SOME, seeded(seed)).inputs[0])}
    assert many == {(row, column) for row in range(5) for column in range(5)}
    assert torch.equal(loader.batch(SOME, seeded(1)).inputs[0], loader.batch(SOME, seeded(1)).inputs[0])


def test_padding_keeps_the_size_and_evaluation_the_image(numbered):
    loader = ImageLoader(numbered, Transforms(pad=2, fill="edge"))
    assert torch.equal(loader.batch(SOME).inputs[0], numbered.batch(SOME).image)
    assert loader.batch(SOME, seeded()).inputs[0].shape == (6, 1, 8, 8)


def test_crops_of_an_evaluation(numbered):
    loader = ImageLoader(numbered, Transforms(crop=4, crops=9))
    places = [corners(batch.inputs[0])[0] for batch in loader.views(SOME)]
    assert places[:5] == [(2, 2), (0, 0), (0, 4), (4, 0), (4, 4)]
    assert len(set(places)) == len(CROPS) == 9


def test_resize_and_scaling(numbered):
    batch = ImageLoader(numbered, Transforms(resize=5, standardize=True)).batch(SOME)
    assert batch.inputs[0].shape == (6, 1, 5, 5)
    assert float(batch.inputs[0].mean()) == pytest.approx(0.0, abs=1e-5)
    scaled = ImageLoader(numbered, Transforms(mean=(0.5,), std=(0.25,))).batch(SOME)
    assert torch.allclose(scaled.inputs[0], (numbered.batch(SOME).image - 0.5) / 0.25)
    assert scaled.image is not None
    assert torch.equal(scaled.image, numbered.batch(SOME).image)  # a decoder draws brightness, not scaled numbers


def test_flip_turn_and_jitter_change_images_in_training_only(numbered):
    plain = numbered.batch(SOME).image
    for transforms in (
        Transforms(flip=True),
        Transforms(rotation=30.0),
        Transforms(brightness=0.2),
        Transforms(contrast=0.3),
    ):
        loader = ImageLoader(numbered, transforms)
        assert torch.equal(loader.batch(SOME).inputs[0], plain)
        assert not torch.allclose(loader.batch(SOME, seeded()).inputs[0], plain)


def test_mixup_mixes_inputs_and_targets_by_the_same_shares(numbered):
    batch = ImageLoader(numbered, Transforms(mixup=1.0)).batch(SOME, seeded())
    assert batch.target.shape == (6, 3)
    assert torch.allclose(batch.target.sum(1), torch.ones(6))
    assert bool(((batch.target > 0.01) & (batch.target < 0.99)).any())
    assert torch.equal(batch.label, SOME % 3)
    assert batch.image is None


def test_both_digits_of_a_pair_are_to_be_decoded_each_by_its_own_capsule():
    dataset = load("multimnist:mnist_sample", "train")
    found, batch = dataset.batch(SOME), ImageLoader(dataset, Transforms()).batch(SOME)
    assert batch.decode is not None
    assert batch.image is not None
    assert torch.equal(batch.decode, found.metadata["digits"])
    assert batch.image.shape == (6, 2, 1, 36, 36)
    assert torch.equal(batch.image[:, 1, 0], found.metadata["parts"][:, 1])
    assert torch.equal(batch.label.gather(1, batch.decode), torch.ones(6, 2))


def test_parts_move_with_their_image():
    dataset = load("multimnist:mnist_sample", "train")
    batch = ImageLoader(dataset, Transforms(pad=4, flip=True)).batch(SOME, seeded(3))
    assert batch.image is not None
    assert torch.allclose(batch.image.sum(1).clamp_max(1.0), batch.inputs[0])


def test_a_digit_alone_leaves_nothing_to_draw_of_the_other():
    dataset = load("diverse_multimnist:mnist_sample", "train")
    many = torch.arange(60)
    batch = ImageLoader(dataset, Transforms()).batch(many)
    assert batch.decode is not None
    alone = batch.label.sum(1) == 1
    assert bool(alone.any())
    assert bool((batch.decode[alone, 1] == -1).all())


def test_what_cannot_be_is_said(numbered):
    with pytest.raises(
        ValueError, match=r"crop of 9×9 does not fit into images of 8×8 \(numbered\); lower transforms.crop"
    ):
        ImageLoader(numbered, Transforms(crop=9)).batch(SOME)
    with pytest.raises(ValueError, match="5 crops of 8×8 in images of the same size are one crop"):
        ImageLoader(numbered, Transforms(crops=5)).views(SOME)
    with pytest.raises(ValueError, match=r"1 to 9 crops; got transforms\.crops=10"):
        ImageLoader(numbered, Transforms(crops=10))


def test_batches_of_a_later_epoch_have_digits_in_other_places() -> None:
    """Through the selection of a recipe too; validation stays where it is, and any step can be gone to at once."""
    arguments = ["--data.train", "translated_mnist:mnist_sample", "--data.limit", "12", "--data.val-size", "6"]
    recipe = recipes.configure(
        "quickstart", "smoke", [*arguments, "--transforms.pad", "0", "--transforms.rotation", "0"]
    )
    loader = RecipeData(recipe).loader("train")
    order = Order(len(loader), 4, recipe.seed)
    batches = [Batches(loader, order, recipe.seed) for _ in range(2)]
    seen: list[dict[int, Tensor]] = []
    for epoch in range(2):
        images: dict[int, Tensor] = {}
        for step in range(3 * epoch, 3 * epoch + 3):
            batch = batches[0].at(step).inputs[0]
            images |= dict(zip(order.batch(step).tolist(), batch, strict=True))
        seen.append(images)
    moved = [not torch.equal(seen[0][number], seen[1][number]) for number in range(12)]
    assert sum(moved) >= 10
    assert torch.equal(batches[1].at(4).inputs[0], batches[0].at(4).inputs[0])
    val = RecipeData(recipe).loader("val")
    assert torch.equal(val.batch(torch.arange(6)).inputs[0], val.batch(torch.arange(6)).inputs[0])


def test_digits_are_distorted_in_training_alone():
    own = Transforms(rotation=30.0, rotation_share=0.5, shift_in_margins=True, squish=0.25, erase=4, amounts="normal")
    loader, plain = (ImageLoader(load("mnist_sample", "train"), each) for each in (own, Transforms()))
    assert torch.equal(loader.batch(SOME).inputs[0], plain.batch(SOME).inputs[0])
    batch = loader.batch(SOME, seeded())
    assert batch.image is not None
    assert torch.equal(batch.inputs[0], batch.image), "what a decoder should reconstruct is distorted alike"
    assert (batch.inputs[0] != plain.batch(SOME).inputs[0]).flatten(1).any(1).all()
    for field in ("rotation", "shift_in_margins", "squish", "erase"):
        without = replace(own, **{field: Transforms.__dataclass_fields__[field].default})
        other = ImageLoader(loader.dataset, without).batch(SOME, seeded()).inputs[0]
        assert not torch.equal(other, batch.inputs[0]), f"{field} does nothing"
