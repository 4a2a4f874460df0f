"""Generated digits: MultiMNIST, DiverseMultiMNIST, translated, shifted and affine MNIST."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from torchcaps.data.base import ArrayDataset, Batch, DataError, Dataset
from torchcaps.data.generated import place
from torchcaps.data.multimnist import DiverseMultiMNIST, MultiMNIST
from torchcaps.data.transformed_mnist import AffineMNIST, ShiftedMNIST, TranslatedMNIST
from torchcaps.data.transforms import AffineRanges

NAMES = tuple("0123456789")


def digits(count: int = 200, split: str = "train", seed: int = 0) -> ArrayDataset:
    """Synthetic digits: blobs inside the middle 20×20, as MNIST's are, each class with a gray level of its own."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=generator)
    images = torch.zeros(count, 1, 28, 28, dtype=torch.uint8)
    ink = torch.rand(count, 20, 20, generator=generator) < 0.4
    ink[:, 0, 0] = ink[:, -1, -1] = True
    images[:, 0, 4:24, 4:24] = (ink * (60 + 20 * labels)[:, None, None]).to(torch.uint8)
    return ArrayDataset("digits", split, NAMES, images, labels)


GENERATORS: dict[str, Callable[[Dataset, int], Dataset]] = {
    "multi": lambda source, seed: MultiMNIST(source, seed=seed),
    "diverse": lambda source, seed: DiverseMultiMNIST(source, seed=seed),
    "translated": lambda source, seed: TranslatedMNIST(source, seed=seed, copies=50),
    "shifted": lambda source, seed: ShiftedMNIST(source, seed=seed, copies=50),
    "affine": lambda source, seed: AffineMNIST(source, seed=seed, copies=50),
}


def flat(batch: Batch) -> dict[str, Tensor]:
    return {"image": batch.image, "label": batch.label, **batch.metadata}


@pytest.mark.parametrize("kind", GENERATORS)
@given(indices=st.lists(st.integers(0, 9_999), min_size=1, max_size=40), seed=st.integers(0, 3))
@settings(max_examples=15, deadline=None)
def test_an_example_is_the_same_in_any_batch(kind: str, indices: list[int], seed: int) -> None:
    dataset = GENERATORS[kind](digits(), seed)
    together = flat(dataset.batch(torch.tensor(indices)))
    again = flat(GENERATORS[kind](digits(), seed).batch(torch.tensor(indices[::-1])))
    alone = flat(dataset[indices[0]])
    for key, value in together.items():
        assert torch.equal(value, again[key].flip(0)), key
        assert torch.equal(value[0], alone[key]), key


@pytest.mark.parametrize("kind", GENERATORS)
def test_images_are_in_range_and_seeds_differ(kind: str) -> None:
    first, second = (GENERATORS[kind](digits(), seed).batch(torch.arange(400)) for seed in (0, 1))
    assert first.image.dtype == torch.float32
    assert 0.0 <= float(first.image.min()) <= float(first.image.max()) <= 1.0
    assert first.image.amax((1, 2, 3)).min() > 0.0
    assert (first.image != second.image).flatten(1).any(1).float().mean() > 0.9


@pytest.mark.parametrize("kind", GENERATORS)
def test_wrong_indices_are_refused(kind: str) -> None:
    dataset = GENERATORS[kind](digits(), 0)
    for wrong in (-1, len(dataset)):
        with pytest.raises(IndexError, match=rf"examples 0 to {len(dataset) - 1}"):
            dataset.batch(torch.tensor([0, wrong]))
    assert len(dataset.batch(torch.arange(0)).image) == 0


def test_multimnist_is_two_moved_digits_of_different_classes() -> None:
    source = digits()
    dataset = MultiMNIST(source)
    assert len(dataset) == 200_000
    batch = dataset.batch(torch.arange(1000, 2000))
    parts, pairs, sources, shifts = (batch.metadata[key] for key in ("parts", "digits", "sources", "shifts"))
    assert batch.image.shape == (1000, 1, 36, 36)
    assert parts.shape == (1000, 2, 36, 36)
    assert (pairs[:, 0] != pairs[:, 1]).all()
    assert torch.equal(pairs, source.labels[sources])
    assert torch.equal(batch.label.sum(1), torch.full((1000,), 2.0))
    assert (batch.label.gather(1, pairs) == 1.0).all()
    assert torch.equal(batch.image[:, 0], parts.sum(1).clamp(max=1.0))
    for k in range(0, 1000, 97):
        for side in (0, 1):
            canvas = torch.zeros(36, 36)
            down, right = shifts[k, side].tolist()
            canvas[4 + down : 32 + down, 4 + right : 32 + right] = source.images[sources[k, side], 0] / 255.0
            assert torch.equal(parts[k, side], canvas)


def test_multimnist_draws_evenly() -> None:
    source = digits(50)
    batch = MultiMNIST(source).batch(torch.arange(20_000))
    sources, shifts = batch.metadata["sources"], batch.metadata["shifts"]
    # Every source digit comes first equally often, and every digit of another class is as likely beside it.
    assert torch.equal(torch.bincount(sources[:, 0]), torch.full((50,), 400))
    first = sources[:, 0] == 7
    others = source.labels != source.labels[7]
    partners = torch.bincount(sources[first, 1], minlength=50)
    assert (partners[others] > 0).all()
    assert (partners[~others] == 0).all()
    for axis in (0, 1):
        for side in (0, 1):
            counts = torch.bincount(shifts[:, side, axis] + 4, minlength=9)
            assert len(counts) == 9
            assert (counts - 20_000 / 9).abs().max() < 5 * (20_000 * 8 / 81) ** 0.5


def test_diverse_multimnist_has_a_sixth_of_single_digits() -> None:
    source = digits()
    dataset = DiverseMultiMNIST(source)
    assert len(dataset) == 350 * 200
    assert len(DiverseMultiMNIST(digits(split="test"))) == 200
    batch = dataset.batch(torch.arange(12_000))
    count, parts, pairs = (batch.metadata[key] for key in ("count", "parts", "digits"))
    single = count == 1
    assert abs(float(single.float().mean()) - 1 / 6) < 5 * (5 / 36 / 12_000) ** 0.5
    assert torch.equal(batch.label.sum(1).long(), count)
    assert (pairs[single, 1] == -1).all()
    assert (parts[single, 1] == 0).all()
    assert torch.equal(batch.image[single, 0], parts[single, 0])
    assert (batch.label[single].gather(1, pairs[single, :1]) == 1.0).all()
    assert (pairs[~single, 0] != pairs[~single, 1]).all()
    assert torch.equal(batch.image[:, 0], parts.sum(1).clamp(max=1.0))
    never = DiverseMultiMNIST(source, single_probability=0.0).batch(torch.arange(500))
    assert torch.equal(never.image, MultiMNIST(source).batch(torch.arange(500)).image)


def test_translated_digits_are_whole_and_everywhere() -> None:
    source = digits()
    batch = TranslatedMNIST(source, copies=50).batch(torch.arange(4_000))
    assert batch.image.shape == (4_000, 1, 40, 40)
    shift = batch.metadata["shift"]
    assert shift.unique().tolist() == list(range(-6, 7))
    picture = source.images[batch.metadata["source"]].float() / 255.0
    torch.testing.assert_close(batch.image.sum((1, 2, 3)), picture.sum((1, 2, 3)))
    down, right = shift[123].tolist()
    assert torch.equal(batch.image[123, 0, 6 + down : 34 + down, 6 + right : 34 + right], picture[123, 0])
    assert torch.equal(batch.label, source.labels[batch.metadata["source"]])


def test_shifted_digits_move_by_two_with_zeros_coming_in() -> None:
    source = digits()
    batch = ShiftedMNIST(source, copies=5).batch(torch.arange(1000))
    assert batch.image.shape == (1000, 1, 28, 28)
    assert batch.metadata["shift"].unique().tolist() == [-2, -1, 0, 1, 2]
    for k in range(0, 1000, 111):
        down, right = batch.metadata["shift"][k].tolist()
        moved = source.images[k % 200, 0].roll((down, right), (0, 1)) / 255.0
        assert torch.equal(batch.image[k, 0], moved)  # the margin of 4 is black, so rolling is shifting


def test_place_cuts_what_leaves_the_frame() -> None:
    pixels = torch.arange(16, dtype=torch.uint8).reshape(1, 4, 4)
    moved = place(pixels, torch.tensor([[1, -3]]), reach=3, size=4)
    expected = torch.zeros(4, 4, dtype=torch.uint8)
    expected[1:, :1] = pixels[0, :3, 3:]
    assert torch.equal(moved[0], expected)


def test_affine_digits_keep_to_affnists_ranges_and_inside_the_frame() -> None:
    dataset = AffineMNIST(digits(), copies=50)
    assert "generated" in dataset.name
    batch = dataset.batch(torch.arange(5000))
    assert batch.image.shape == (5000, 1, 40, 40)
    rotation, shear, scale = (batch.metadata[key] for key in ("rotation", "shear", "scale"))
    for values, low, high in (
        (rotation, -20, 20),
        (shear, -0.2, 0.2),
        (scale[:, 0], 0.8, 1.2),
        (scale[:, 1], 0.8, 1.2),
    ):
        span = high - low
        assert low <= float(values.min()) < low + 0.01 * span
        assert high - 0.01 * span < float(values.max()) <= high
    # All the ink is there: a map multiplies areas by its determinant, which is the product of the scales.
    before = dataset.pixels[batch.metadata["source"]].float().sum((1, 2)) / 255.0
    ratio = batch.image.sum((1, 2, 3)) / (before * scale.prod(1))
    assert (ratio - 1.0).abs().max() < 0.04
    # And it is found everywhere, up to every edge.
    occupied = batch.image.amax((0, 1)) > 0
    assert occupied[1:-1].any(1).all()
    assert occupied[:, 1:-1].any(0).all()


def test_affine_without_a_map_is_a_translation() -> None:
    still = AffineRanges(rotation=0.0, shear=0.0, scale=(1.0, 1.0))
    batch = AffineMNIST(digits(), ranges=still).batch(torch.arange(200))
    down, right = batch.metadata["translation"].T
    rows = torch.arange(40.0) - 19.5
    weight = batch.image[:, 0] / batch.image.sum((1, 2, 3))[:, None, None]
    source = digits().images[:, 0].float()
    source = source / source.sum((1, 2))[:, None, None]
    old = torch.arange(28.0) - 13.5
    torch.testing.assert_close((weight.sum(2) * rows).sum(1), (source.sum(2) * old).sum(1) + down, atol=0.03, rtol=0)
    torch.testing.assert_close((weight.sum(1) * rows).sum(1), (source.sum(1) * old).sum(1) + right, atol=0.03, rtol=0)


class Squares(Dataset):
    """A source that is no ArrayDataset, of any image shape."""

    name, split, classes = "squares", "test", ("a", "b")

    def __init__(self, channels: int = 1, side: int = 28, multi_hot: bool = False, count: int = 6) -> None:
        self.shape, self.multi_hot, self.count = (channels, side, side), multi_hot, count

    def __len__(self) -> int:
        return self.count

    def batch(self, indices: Tensor) -> Batch:
        image = torch.ones(len(indices), *self.shape) * 0.5
        label = torch.ones(len(indices), 2) if self.multi_hot else indices % 2
        return Batch(image, label, {})


def test_any_dataset_of_grey_28_is_a_source() -> None:
    batch = MultiMNIST(Squares()).batch(torch.arange(4))
    assert (batch.metadata["digits"].sum(1) == 1).all()
    assert batch.image.max() == 1.0  # two halves of 128/255 are clipped


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (Squares(channels=3, side=32), r"gray 28×28.*squares/test has 3 channel\(s\) of 32×32"),
        (Squares(multi_hot=True), "one class number each.*label rows of 2"),
        (Squares(count=0), "has none"),
    ],
)
def test_wrong_sources_are_named(source: Dataset, message: str) -> None:
    for make in GENERATORS.values():
        with pytest.raises(DataError, match=message):
            make(source, 0)


def test_one_class_cannot_make_pairs() -> None:
    with pytest.raises(DataError, match="only one class"):
        MultiMNIST(Squares(count=1))


def test_labels_beyond_the_classes_are_named() -> None:
    source = digits()
    source.labels[3] = 12
    with pytest.raises(DataError, match="names 10 classes but has labels from 0 to 12"):
        TranslatedMNIST(source)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="at least 1; got 0"):
        MultiMNIST(digits(), per_digit=0)
    with pytest.raises(ValueError, match="even and at least 28"):
        TranslatedMNIST(digits(), size=27)
    with pytest.raises(ValueError, match="got -1"):
        ShiftedMNIST(digits(), reach=-1)
    with pytest.raises(ValueError, match="single_probability=2"):
        DiverseMultiMNIST(digits(), single_probability=2.0)


@pytest.mark.parametrize("kind", [TranslatedMNIST, ShiftedMNIST, AffineMNIST])
def test_training_draws_anew_in_each_epoch(kind):
    made, indices = kind(digits()), torch.arange(20)
    epochs = [made.at_epoch(epoch).batch(indices) for epoch in range(3)]
    assert torch.equal(epochs[0].image, made.batch(indices).image), "the first epoch is the dataset itself"
    for first, second in ((0, 1), (1, 2), (0, 2)):
        assert not torch.equal(epochs[first].image, epochs[second].image)
    assert all(torch.equal(epoch.label, epochs[0].label) for epoch in epochs), "of the same digits"
    again = kind(digits()).at_epoch(2).batch(indices.flip(0)).image.flip(0)
    assert torch.equal(again, epochs[2].image), "a function of seed, epoch and index"
    assert not torch.equal(kind(digits(), seed=1).at_epoch(2).batch(indices).image, again)


def test_pairs_are_the_same_in_each_epoch():
    made = MultiMNIST(digits(), per_digit=3)
    assert made.at_epoch(4) is made, "there are as many pairs as the paper made"
