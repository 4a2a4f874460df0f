import re

import numpy as np
import pytest
import torch

from tests.lab.evaluation.tiny_runs import tiny_run
from tests.lab.explanation.tiny import CAPSULES, WITH_DECODER, small
from torchcaps import models
from torchcaps.data.transforms import linear_maps, warp
from torchcaps.lab import recipes
from torchcaps.lab.explanation.perturbation import (
    MEASURES,
    OFFSETS,
    Perturbations,
    dimension_effects,
    draw_effects,
    draw_perturbations,
    measure_shapes,
    perturb,
)
from torchcaps.lab.explanation.reconstruction import draw_reconstructions, reconstruct
from torchcaps.lab.reports import run_report
from torchcaps.lab.tracing.networks import decoder_advice, require_decoder

LABELS = torch.tensor([0, 3, 2])


@pytest.mark.parametrize("name", WITH_DECODER)
def test_reconstructions_are_the_decoders(name: str) -> None:
    net, images = small(name)
    record = reconstruct(net, images, LABELS)
    decoded = net(images, decode=LABELS).reconstruction
    assert decoded is not None
    np.testing.assert_allclose(record.from_label[..., 0], decoded[:, 0].detach().numpy(), rtol=1e-5)
    error = (decoded - images).square().flatten(1).sum(1)
    np.testing.assert_allclose(record.error, error.detach().numpy(), rtol=1e-4)
    right = record.label == record.predicted
    np.testing.assert_array_equal(record.from_label[right], record.from_predicted[right])
    draw_reconstructions(record, "title")


@pytest.mark.parametrize("name", [name for name in CAPSULES if name not in WITH_DECODER][:2])
def test_no_decoder_no_reconstruction(name: str) -> None:
    net, images = small(name)
    with pytest.raises(ValueError, match="no decoder"):
        reconstruct(net, images, LABELS)
    with pytest.raises(ValueError, match="no decoder"):
        perturb(net, images, LABELS)


@pytest.mark.parametrize("name", WITH_DECODER)
def test_a_move_of_zero_is_the_plain_reconstruction(name: str) -> None:
    net, images = small(name)
    record = perturb(net, images, LABELS, offsets=(-0.2, 0.0, 0.2))
    plain = reconstruct(net, images, LABELS)
    np.testing.assert_allclose(record.plain, plain.from_label, atol=1e-6)
    for dimension in range(record.decoded.shape[1]):
        np.testing.assert_allclose(record.decoded[:, dimension, 1], record.plain, atol=1e-6)
        assert not np.array_equal(record.decoded[:, dimension, 0], record.plain)
    effects = dimension_effects(record)
    draw_perturbations(record, effects=effects)
    draw_effects(effects)


def test_offsets_are_the_papers() -> None:
    assert OFFSETS[0] == -0.25
    assert OFFSETS[-1] == 0.25
    assert len(OFFSETS) == 11
    np.testing.assert_allclose(np.diff(OFFSETS), 0.05)


def _stroke() -> torch.Tensor:
    """An upright bar of 6×16 pixels on 32×32, smoothed by being shrunk from twice its size."""
    large = torch.zeros(1, 1, 64, 64)
    large[..., 16:48, 26:38] = 1.0
    return torch.nn.functional.avg_pool2d(large, 2)


def test_measures_follow_what_is_done_to_a_stroke() -> None:
    steps = torch.linspace(-1.0, 1.0, 5)
    still, one = torch.zeros(5), torch.ones(5)
    image = _stroke().expand(5, -1, -1, -1)

    def moved(*, shear=still, tall=one, wide=one, down=still, right=still):
        return measure_shapes(warp(image, linear_maps(still, shear, torch.stack((tall, wide), 1)),
                                   torch.stack((down, right), 1)))  # fmt: skip

    index = {name: number for number, name in enumerate(MEASURES)}
    slant = moved(shear=0.3 * steps)[:, index["slant"]]
    torch.testing.assert_close(slant, 0.3 * steps, atol=0.03, rtol=0)
    places = moved(down=3 * steps, right=2 * steps)
    torch.testing.assert_close(places[:, index["row"]], 15.5 + 3 * steps, atol=0.01, rtol=0)
    torch.testing.assert_close(places[:, index["column"]], 15.5 + 2 * steps, atol=0.01, rtol=0)
    tall = moved(tall=1 + 0.3 * steps)[:, index["height"]]
    torch.testing.assert_close(tall, 16 * (1 + 0.3 * steps), atol=0.5, rtol=0)
    wide = moved(wide=1 + 0.3 * steps)
    assert (wide[:, index["width"]].diff() > 0.3).all()
    assert (wide[:, index["thickness"]].diff() > 0.2).all()
    sheared_width = moved(shear=0.3 * steps)[:, index["width"]]
    assert float(sheared_width.max() - sheared_width.min()) < 0.5


def test_effects_name_the_dimension_that_moves_the_stroke() -> None:
    """Dimension 0 moves a stroke to the right, dimension 1 leans it, dimension 2 does nothing."""
    offset = torch.tensor(OFFSETS)
    still, none = torch.zeros(len(offset)), torch.zeros(len(offset), 2)
    image = _stroke().expand(len(offset), -1, -1, -1)
    upright = linear_maps(still, still, torch.ones(len(offset), 2))
    right = warp(image, upright, torch.stack((still, 8 * offset), 1))
    lean = warp(image, linear_maps(still, offset, torch.ones(len(offset), 2)), none)
    decoded = torch.stack((right, lean, image)).permute(0, 1, 3, 4, 2)[None].numpy()
    picture = decoded[:, 0, 5]
    record = Perturbations(
        picture, np.zeros(1, int), np.zeros((1, 3), np.float32), offset.numpy(), picture, decoded, ("stroke",)
    )
    effects = dimension_effects(record)
    column, slant = MEASURES.index("column"), MEASURES.index("slant")
    assert effects.correlation[0, column] > 0.999
    assert abs(effects.change[0, column] - 4.0) < 0.05
    assert effects.correlation[1, slant] > 0.999
    assert abs(effects.change[1, slant] - 0.5) < 0.05
    assert abs(effects.correlation[0, slant]) < 0.3
    np.testing.assert_array_equal(effects.correlation[2], 0.0)
    assert np.abs(effects.correlation).max() <= 1 + 1e-6


def test_an_untrained_decoder_is_left_out(tmp_path) -> None:
    """A recipe without a weight for the reconstruction loss leaves the decoder as it was made: its images are noise."""
    run = tiny_run(tmp_path / "run", "--loss.reconstruction", "0")
    models.save(run.model(), tmp_path / "alone.safetensors", recipes.training_of(run.recipe, tuple("0123456789"), None))
    for model in (run.model(), models.load(tmp_path / "alone.safetensors")):
        with pytest.raises(ValueError, match=r"was not trained; train with --model.decoder --loss.reconstruction"):
            require_decoder(model)
    text = run_report(run).read_text(encoding="utf-8")
    assert text.count("Left out: the decoder of this sabour2017_mnist was not trained") == 2
    require_decoder(tiny_run(tmp_path / "trained").model())


def test_advice_names_options_that_exist() -> None:
    """Of every recipe: the options can be given to it, and then there is a decoder that is trained."""
    advised = 0
    for name in recipes.RECIPES:
        if recipes.get(name, "smoke").text.encoder:
            continue
        model = recipes.build_model(recipes.get(name, "smoke"))
        options = re.findall(r"--\S+(?: [\d.]+)?", decoder_advice(model))
        if not options:
            assert "sabour2017/mnist" in decoder_advice(model)
            continue
        words = " ".join(options).split()
        built = recipes.build_model(recipes.configure(name, "smoke", words))
        assert built.decoder is not None, name
        assert not built.untrained
        advised += 1
    assert advised
    require_decoder(recipes.build_model(recipes.get("sabour2017/mnist", "smoke")))
