"""What every model of the registry must do."""

import pytest
import torch

import torchcaps as tc
from tests.models.reduced import NAMES, capsule_net, distinct, inputs, model, overrides
from torchcaps.models import CapsuleNet, Prediction


def close(one: torch.Tensor, other: torch.Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_forward_and_backward_reach_every_parameter(name: str) -> None:
    built = model(name)
    found = built(inputs(built, 3))
    assert isinstance(found, Prediction)
    assert found.logits.shape == (3, tc.models.configure(name, **overrides(name)).classes)
    total = found.logits.square().sum()
    if isinstance(built, CapsuleNet):
        assert found.capsules is not None
        total = total + found.capsules.pose.square().sum()
        if built.decoder is not None:
            drawn = built(inputs(built, 3), decode=torch.tensor([0, 1, 1])).reconstruction
            assert drawn.shape == (3, *built.image)
            total = total + drawn.sum()
    total.backward()
    for key, parameter in built.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key


@pytest.mark.parametrize("name", NAMES)
def test_one_example_alone_is_treated_as_in_a_batch(name: str) -> None:
    built = model(name).eval()
    batch = inputs(built, 3)
    together = built(batch).logits
    close(torch.cat([built(one[None]).logits for one in batch]), together)


@pytest.mark.parametrize("name", distinct())
def test_bfloat16_autocast(name: str) -> None:
    built = model(name)
    batch = inputs(built, 3)
    plain = built(batch).logits
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = built(batch).logits
    found.float().sum().backward()
    scale = plain.abs().max().item() + 1.0
    assert (found.float() - plain).abs().max().item() < 0.2 * scale


@pytest.mark.parametrize("name", distinct())
def test_saved_and_loaded_is_the_same_model(name: str, tmp_path) -> None:
    built = model(name).eval()
    tc.models.save(built, tmp_path / "model.safetensors")
    again = tc.models.load(tmp_path / "model.safetensors").eval()
    assert again.origin == built.origin
    batch = inputs(built, 2)
    assert torch.equal(built(batch).logits, again(batch).logits)


@pytest.mark.parametrize("name", ["sabour2017_mnist", "tsai2020_cifar10_dynamic", "efficient2021_mnist"])
def test_squashes_of_primary_and_class_capsules(name: str) -> None:
    usual = "exponential" if name.startswith("efficient") else "rational"
    other = "rational" if usual == "exponential" else "exponential"
    for changed, wanted in (
        ({}, (usual, usual)),
        ({"squash": other}, (other, usual)),
        ({"class_squash": other}, (usual, other)),
        ({"squash": other, "class_squash": other, "routing": "fixed_point"}, (other, other)),
        ({"routing": "self_attention"}, (usual, "exponential")),
    ):
        built = capsule_net(name, **changed)
        found = [module.squash for module in built.modules() if hasattr(module, "squash")]
        assert found == list(wanted), changed
    with pytest.raises(ValueError, match="class_squash='rational' is for routings that squash; got routing='em'"):
        capsule_net(name, class_squash="rational", routing="em")
    for field in ("squash", "class_squash"):
        with pytest.raises(ValueError, match="no squash 'cubic'; there are 'rational', 'exponential'"):
            capsule_net(name, **{field: "cubic"})
