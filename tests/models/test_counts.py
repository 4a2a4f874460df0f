"""Parameters as the papers have them, to the last one, or with the difference explained."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import torchcaps as tc
from torchcaps.cli.models import models
from torchcaps.models import Dense, Primary, registry
from torchcaps.models.hinton2018 import MatrixCapsConfig, matrix_capsules
from torchcaps.models.registry import agrees, row

PARAMETERS = {
    "sabour2017_mnist": 8_215_568,
    "sabour2017_multimnist": 11_361_808,
    "sabour2017_affnist": 13_475_648,
    "sabour2017_cifar10": 14_369_472,
    "sabour2017_svhn": 4_720_480,
    "sabour2017_smallnorb": 9_327_104,
    "hinton2018_smallnorb": 317_194,
    "hinton2018_smallnorb_small": 68_754,
    "heinsen2019_smallnorb": 271_688,
    "heinsen2019_sst5": 140_480,
    "heinsen2019_sst2": 138_944,
    "heinsen2022_sst5": 5_068_422,
    "heinsen2022_sst2": 5_058_435,
    "heinsen2022_cifar10": 5_085_067,
    "heinsen2022_cifar100": 5_384_677,
    "heinsen2022_imagenet": 8_380_777,
    "tsai2020_cifar10": 561_297,
    "tsai2020_cifar10_resnet": 1_828_817,
    "tsai2020_cifar100": 1_462_989,
    "tsai2020_cifar100_resnet": 2_799_629,
    "tsai2020_diverse_multimnist": 9_963_969,
    "tsai2020_diverse_multimnist_vector": 42_478_017,
    "tsai2020_cifar10_dynamic": 7_992_576,
    "tsai2020_cifar100_dynamic": 31_585_536,
    "tsai2020_cifar10_resnet_dynamic": 12_451_136,
    "tsai2020_cifar100_resnet_dynamic": 36_044_096,
    "tsai2020_cifar10_em": 453_044,
    "tsai2020_cifar100_em": 499_304,
    "tsai2020_cifar10_resnet_em": 1_710_580,
    "tsai2020_cifar100_resnet_em": 1_756_840,
    "zhao2020_cifar10": 903_856,
    "zhao2020_fashion_mnist": 903_568,
    "zhao2020_affnist": 381_617,
    "zhao2020_multimnist": 455_729,
    "zhao2020_smallnorb": 194_944,
    "sr2019_cifar10": 931_664,
    "sr2019_cifar10_deep": 3_187_536,
    "sr2019_smallnorb": 814_960,
    "vb2020_smallnorb": 68_714,
    "vb2020_smallnorb_tiny": 206_154,
    "comparison": 103_240,
    "comparison_smallnorb": 102_888,
    "cnn_sabour2017_mnist": 35_445_522,
    "cnn_sabour2017_multimnist": 24_563_978,
    "cnn_tsai2020_cifar10": 18_919_434,
    "cnn_tsai2020_cifar100": 19_011_684,
    "cnn_tsai2020_diverse_multimnist": 19_553_162,
    "cnn_tsai2020_diverse_multimnist_learned": 42_490_762,
    "resnet18": 11_173_962,
    "resnet18_cifar100": 11_220_132,
    "attention_pooling": 38_597,
    "efficient2021_mnist": 1_573_168,
    "efficient2021_smallnorb": 381_234,
}


def test_every_model_has_its_count_here() -> None:
    assert set(PARAMETERS) == set(tc.models.list())


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters(name: str) -> None:
    assert tc.models.count_parameters(tc.models.create(name)) == PARAMETERS[name]


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_difference_to_the_paper_is_explained_in_the_documentation(name: str) -> None:
    entry = tc.models.entry(name)
    if agrees(PARAMETERS[name], entry.paper):
        assert not entry.why
        return
    assert entry.why
    page = (Path(__file__).parents[2] / "docs" / "deviations.md").read_text()
    assert f"`{name}`" in page, f"explain the parameters of {name} in docs/deviations.md"
    assert f"{PARAMETERS[name]:,}" in page


def test_parts_of_zhao_counted_with_statistics_are_the_papers() -> None:
    model = tc.models.create("zhao2020_affnist")
    decoder = model.decoder
    assert isinstance(decoder, tc.decoders.DeconvolutionDecoder)
    drawn = tc.models.count_parameters(decoder) + tc.models.count_statistics(decoder)
    every = tc.models.count_parameters(model) + tc.models.count_statistics(model)
    assert (drawn, every - drawn) == (199_041, 196_112)  # "about 199K" and "about 196K"


def test_without_decoder_capsnet_has_6_8_million() -> None:
    assert tc.models.count_parameters(tc.models.create("sabour2017_mnist", decoder=False)) == 6_804_224


@pytest.mark.parametrize(
    ("name", "learned", "decoder", "statistics"),
    [("efficient2021_mnist", 161_824, 1_411_344, 576), ("efficient2021_smallnorb", 151_664, 229_570, 0)],
)
def test_efficient_capsnets_have_the_counts_of_the_published_weights(
    name: str, learned: int, decoder: int, statistics: int
) -> None:
    alone = tc.models.create(name, decoder=False)
    whole = tc.models.create(name)
    assert tc.models.count_parameters(alone) == learned
    assert isinstance(whole.decoder, tc.decoders.Decoder)
    assert tc.models.count_parameters(whole.decoder) == decoder
    assert tc.models.count_statistics(alone) == statistics


def test_multiply_adds_of_a_small_network_by_hand() -> None:
    net = tc.models.CapsuleNet(
        image=(2, 5, 5),
        backbone=nn.Conv2d(2, 3, 3),  # 3×3 positions × 3 channels × 18 weights = 486
        primary=Primary("layer_norm", caps=2, pose=4),  # 9 positions × 3 × 8 = 216
        layers=[Dense(5, 4, tc.models.routing("dynamic", 3))],  # 18 × 5 pairs × (4 × 4 + 5 × 4) = 3,240
    )
    assert tc.models.count_macs(net, (2, 5, 5)) == 486 + 216 + 3240


def test_multiply_adds_of_vector_routings_by_hand() -> None:
    layers = nn.Sequential(tc.VectorRouting(None, 4, 3, 5), tc.VectorRouting(3, 5, 2, 1, num_iters=1))
    first = 7 * 4 + 2 * (7 * 3 * 4) + 3 * (7 * 3 * 4 + 3 * 4 * 5)  # scores, betas, three sums and comparisons
    second = 3 * 5 + (3 * 2 * 5 + 2 * 5 * 1)
    assert tc.models.count_macs(layers, (7, 4)) == first + second


def test_the_listing_says_what_is_counted() -> None:
    lines = {line.name: line for line in registry.table()}
    assert {name: line.parameters for name, line in lines.items()} == PARAMETERS
    for name in (
        "sabour2017_mnist",
        "hinton2018_smallnorb_small",
        "tsai2020_cifar10",
        "resnet18",
        "attention_pooling",
        "heinsen2022_sst5",
    ):
        assert lines[name] == row(name), "run scripts/write_model_sizes.py"


def test_rows_of_the_listing(capsys: pytest.CaptureFixture[str]) -> None:
    line = row("hinton2018_smallnorb")
    assert (line.parameters, line.paper) == (317_194, "310 K")
    assert "294,912" in line.difference
    assert line.macs > 50e6
    models("zhao2020_s")
    assert "194,944" in capsys.readouterr().out


def test_counting_leaves_a_model_as_it_was() -> None:
    model = tc.models.create("zhao2020_affnist", width=4)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    tc.models.count_macs(model, (1, 40, 40))
    assert model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_what_matrix_capsules_gain_by_a_longer_stem_and_by_norms():
    plain = MatrixCapsConfig(stem_channels=8, caps=(2, 2, 2))
    configs = (plain, replace(plain, stem_strides=(2, 1, 1), stem_norm=True), replace(plain, pose_norm="type"))
    nets = [matrix_capsules(config) for config in configs]
    parameters = [tc.models.count_parameters(net) for net in nets]
    assert parameters[1] - parameters[0] == 2 * (8 * 8 * 9 + 8) + 3 * 2 * 8  # two convolutions, three norms
    # Three norms of poses and one of scores, of two types each, and no biases of primary capsules.
    assert parameters[2] - parameters[0] == (3 + 1) * 2 * 2 - 2 * 17
    images = torch.randn(4, 2, 32, 32)
    assert nets[1].backbone(images).shape == nets[0].backbone(images).shape
    pose = nets[2].primary(nets[2].backbone(images)).pose
    torch.testing.assert_close(pose.transpose(0, 3).flatten(1).std(1), torch.ones(2), atol=1e-2, rtol=0)


def test_batch_norm_of_the_plain_network_is_two_numbers_for_each_channel():
    small = {"image_size": 8, "widths": (8, 6), "hidden": 16}
    plain, normed = (tc.models.create("cnn_sabour2017_multimnist", **small, norm=norm) for norm in (False, True))
    assert tc.models.count_parameters(normed) - tc.models.count_parameters(plain) == 2 * (8 + 6)
    assert sum(isinstance(part, nn.BatchNorm2d) for part in normed.modules()) == 2


def test_settings_of_matrix_capsules_reach_their_layers():
    config = MatrixCapsConfig(stem_channels=8, caps=(2, 2, 32), class_weight_std=0.5, eps=0.1)
    for given, expected, eps in ((MatrixCapsConfig(stem_channels=8, caps=(2, 2, 32)), 0.01, 5e-4), (config, 0.5, 0.1)):
        net = matrix_capsules(given)
        last = net.layers[-1]
        assert isinstance(last, tc.layers.ClassCapsules)
        assert last.get_parameter("weight").std().item() == pytest.approx(expected, rel=0.05)  # 2,560 weights
        routings = [part for part in net.modules() if isinstance(part, tc.routing.EMRouting)]
        assert [routing.eps for routing in routings] == [eps] * 3
