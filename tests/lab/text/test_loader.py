"""Batches of hidden states, and what mixup does to them; batches of like lengths."""

import pytest
import torch

import torchcaps as tc
from torchcaps.data import TextDataset
from torchcaps.data.transforms import draw_mixture
from torchcaps.lab.text import Encoder, OnTheFly, TextLoader
from torchcaps.lab.training.batches import GROUP, Order

TEXTS = ["the film is good", "dull", "a very awful plot", "it was fine"]


@pytest.fixture
def loader(encoder: Encoder) -> TextLoader:
    texts = TextDataset("toy", "train", ("no", "yes"), TEXTS, torch.tensor([1, 0, 0, 1]))
    return TextLoader(texts, OnTheFly(encoder, TEXTS), mixup=0.2)


def test_evaluation_takes_texts_as_they_are(loader: TextLoader) -> None:
    batch = loader.batch(torch.tensor([1, 0]))
    states, mask = batch.inputs
    assert states.shape == (2, 6, 3, 8)
    assert mask.tolist() == [[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1]]
    assert bool((states[0, 3:] == 0).all())
    assert batch.target.tolist() == batch.label.tolist() == [0, 1]


def test_training_mixes_states_masks_and_labels_alike(loader: TextLoader) -> None:
    chosen = torch.tensor([0, 1, 2, 3])
    plain, mask = loader.batch(chosen).inputs
    batch = loader.batch(chosen, torch.Generator().manual_seed(3))
    states, share = batch.inputs
    assert batch.target.shape == (4, 2)
    torch.testing.assert_close(batch.target.sum(1), torch.ones(4))
    assert bool(((share > 0) & (share < 1)).any())
    mixture = draw_mixture(4, generator=torch.Generator().manual_seed(3), alpha=0.2)
    torch.testing.assert_close(states, mixture.mix(plain))
    torch.testing.assert_close(share, mixture.mix(mask))
    torch.testing.assert_close(batch.target[:, 1], mixture.mix(torch.tensor([1.0, 0.0, 0.0, 1.0])))


def test_the_same_generator_gives_the_same_mixture(loader: TextLoader) -> None:
    one, two = (loader.batch(torch.arange(4), torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(one.inputs[0], two.inputs[0])
    assert torch.equal(one.target, two.target)


def test_texts_and_states_must_go_together(encoder: Encoder) -> None:
    texts = TextDataset("toy", "train", ("no", "yes"), TEXTS, torch.tensor([1, 0, 0, 1]))
    with pytest.raises(ValueError, match="4 texts but hidden states of 2"):
        TextLoader(texts, OnTheFly(encoder, TEXTS[:2]))


def model() -> tc.models.Model:
    torch.manual_seed(0)
    return tc.models.create("heinsen2019_sst5", classes=3, depth=3, embedding=8, features=6, caps=4, tokens=5)


def test_padding_changes_nothing() -> None:
    states = torch.randn(2, 4, 3, 8, generator=torch.Generator().manual_seed(0))
    padded = torch.cat([states, torch.randn(2, 3, 3, 8)], 1)
    mask = torch.tensor([[1.0] * 4 + [0.0] * 3] * 2)
    for name in ("heinsen2019_sst5", "heinsen2022_sst5", "attention_pooling"):
        net = tc.models.create(name, classes=3, depth=3, embedding=8, features=6)
        torch.testing.assert_close(net(padded, mask).logits, net(states).logits, rtol=1e-4, atol=1e-5)


def test_a_share_of_a_mask_lies_between_being_there_and_not() -> None:
    net = model()
    assert isinstance(net, tc.models.CapsuleNet)
    states = torch.randn(1, 3, 3, 8)
    capsules = net.first_capsules(states, torch.tensor([[1.0, 0.25, 0.0]]))
    torch.testing.assert_close(capsules.presence[0, ::3], torch.tensor([1.0, 0.25, 0.0]))
    whole = net.first_capsules(states, torch.tensor([[True, True, False]]))
    assert whole.presence[0, ::3].tolist() == [1.0, 1.0, 0.0]
    share = torch.tensor([[1.0, 0.25, 0.0]])
    net(states, share).logits.sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in net.parameters())


@pytest.mark.parametrize(("examples", "size"), [(1003, 4), (7, 4), (401, 2), (12, 4)])
def test_batches_of_like_lengths_hold_every_example_once(examples: int, size: int) -> None:
    lengths = torch.randint(1, 60, (examples,), generator=torch.Generator().manual_seed(0))
    order, plain = Order(examples, size, 0, lengths), Order(examples, size, 0)
    assert order.steps_per_epoch == plain.steps_per_epoch
    first = [order.batch(step) for step in range(order.steps_per_epoch)]
    assert [len(batch) for batch in first] == [len(plain.batch(step)) for step in range(plain.steps_per_epoch)]
    seen = torch.cat(first).tolist()
    assert len(set(seen)) == len(seen) >= examples - 1
    if examples > 2 * GROUP:
        spread = sum(int(lengths[batch].max() - lengths[batch].min()) for batch in first)
        unsorted = sum(
            int(lengths[batch].max() - lengths[batch].min()) for batch in map(plain.batch, range(len(first)))
        )
        assert spread < 0.2 * unsorted
        longest = [int(lengths[batch].max()) for batch in first[:GROUP]]
        assert longest != sorted(longest)


def test_any_batch_can_be_gone_to_at_once() -> None:
    lengths = torch.arange(500) % 37
    order = Order(500, 3, 1, lengths)
    forward = [order.batch(step).tolist() for step in range(400)]
    for step in (399, 3, 250, 166, 167):
        assert Order(500, 3, 1, lengths).batch(step).tolist() == forward[step]
    assert forward[:100] != forward[167:267]
