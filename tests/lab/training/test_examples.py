"""Which examples a run sees, and in which order."""

from dataclasses import replace

import pytest
import torch

from tests.lab.training import tiny
from torchcaps.data import load
from torchcaps.lab.recipes import Data
from torchcaps.lab.training.batches import BLOCK, Order, Shuffle, mix_seeds
from torchcaps.lab.training.examples import RecipeData, SubsetIndices


@pytest.mark.parametrize("length", [1, 2, 3, 7, 64, 1000, 4097])
def test_a_shuffle_has_every_number_once(length: int):
    found = Shuffle(length, 5).at(torch.arange(length))
    assert sorted(found.tolist()) == list(range(length))


def test_a_shuffle_moves_things_and_differs_by_seed():
    one, other = (Shuffle(1000, seed).at(torch.arange(1000)) for seed in (1, 2))
    assert int((one == torch.arange(1000)).sum()) < 10
    assert int((one == other).sum()) < 10


def test_stretches_are_the_whole_cut_up():
    length = BLOCK + 1000
    shuffle = Shuffle(length, 1)
    whole = shuffle.at(torch.arange(length))
    for start, stop in ((0, 10), (BLOCK - 5, BLOCK + 5), (BLOCK + 5, length), (3, 7)):
        assert torch.equal(shuffle.stretch(start, stop), whole[start:stop])


def test_tens_of_millions_are_not_written_out():
    found = Shuffle(60_000_000, 1).at(torch.arange(20))
    assert len(set(found.tolist())) == 20
    assert int(found.max()) < 60_000_000


def test_every_epoch_sees_every_example_in_another_order():
    order = Order(25, 8, seed=1)
    assert order.steps_per_epoch == 3  # 8, 8, 8; the one that is left over has no statistics
    order = Order(26, 8, seed=1)
    epochs = [torch.cat([order.batch(4 * epoch + step) for step in range(4)]) for epoch in (0, 1)]
    assert [sorted(epoch.tolist()) for epoch in epochs] == [list(range(26))] * 2
    assert not torch.equal(*epochs)
    assert [order.seen(step) for step in (0, 1, 3, 4, 5)] == [0, 8, 24, 26, 34]


def test_the_order_is_a_function_of_seed_and_step():
    forward, backward = Order(100, 7, seed=2), Order(100, 7, seed=2)
    there = [forward.batch(step) for step in range(40)]
    back = [backward.batch(step) for step in reversed(range(40))][::-1]
    assert all(torch.equal(one, other) for one, other in zip(there, back, strict=True))
    assert not torch.equal(there[0], Order(100, 7, seed=3).batch(0))


def test_seeds_of_several_numbers_do_not_meet():
    assert len({mix_seeds(seed, step) for seed in range(30) for step in range(30)}) == 900


def test_validation_examples_are_the_same_for_every_seed_and_apart_from_the_others():
    def chosen(seed: int, split) -> set[int]:
        selection = SubsetIndices(tiny.recipe(seed=seed), split, 500)
        return set(selection.of(torch.arange(len(selection))).tolist())

    assert chosen(1, "val") == chosen(2, "val")
    assert len(chosen(1, "val")) == 20
    assert chosen(1, "train") == chosen(2, "train")
    assert len(chosen(1, "train")) == 45
    assert not chosen(1, "val") & chosen(1, "train")


def test_a_smaller_limit_takes_the_first_of_the_same():
    small, large = (SubsetIndices(tiny.recipe(data=Data(val_size=20, limit=limit)), "train", 500) for limit in (10, 30))
    assert torch.equal(small.of(torch.arange(10)), large.of(torch.arange(30))[:10])


def test_test_examples_are_spread_evenly():
    selection = SubsetIndices(tiny.recipe(data=Data(test_limit=5)), "test", 101)
    assert selection.of(torch.arange(5)).tolist() == [0, 25, 50, 75, 100]
    everything = SubsetIndices(tiny.recipe(data=Data()), "test", 101)
    assert torch.equal(everything.of(torch.arange(101)), torch.arange(101))


def test_raw_examples_are_those_of_the_loader():
    data = RecipeData(tiny.recipe())
    raw, batch = data.examples("val").batch(torch.arange(20)), data.loader("val").batch(torch.arange(20))
    assert torch.equal(raw.label, batch.label)
    assert torch.equal(raw.image, batch.inputs[0])
    assert len(data.examples("test")) == len(data.loader("test")) == 30
    assert data.examples("train").name == load("mnist_sample", "train").name


def test_what_cannot_be_is_said():
    recipe = tiny.recipe()
    with pytest.raises(ValueError, match="has no validation examples; train it with"):
        RecipeData(replace(recipe, data=Data())).loader("val")
    with pytest.raises(ValueError, match="val_size=500 of 500 examples"):
        SubsetIndices(replace(recipe, data=Data(val_size=500)), "train", 500)
    with pytest.raises(ValueError, match="limit of 0 examples"):
        SubsetIndices(replace(recipe, data=Data(limit=0)), "train", 500)
    with pytest.raises(ValueError, match="no examples to train on"):
        Order(0, 8, 0)
