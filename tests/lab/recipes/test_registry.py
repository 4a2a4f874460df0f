"""What holds for every recipe."""

import dataclasses
import json
import re

import pytest

import torchcaps.data as data
import torchcaps.lab.recipes as recipes
import torchcaps.models as models
from torchcaps.lab.recipes import AnyRecipe, Scale

NAMES = recipes.list()
EVERY = [(name, scale) for name in NAMES for scale in recipes.SCALES]


def test_the_papers_experiments_are_there():
    wanted = {
        "sabour2017": "mnist multimnist affnist cifar10 smallnorb svhn mnist-cnn multimnist-cnn affnist-cnn",
        "hinton2018": "smallnorb smallnorb-cnn",
        "heinsen2019": "smallnorb sst5 sst2",
        "tsai2020": "cifar10 cifar10-resnet cifar100 cifar100-resnet diverse-multimnist diverse-multimnist-vector",
        "zhao2020": "fashion-mnist cifar10 svhn affnist multimnist smallnorb affnist-dynamic affnist-em",
        "sr2019": "cifar10 cifar10-deep smallnorb-azimuth smallnorb-elevation",
        "own": "images",
    }
    names = {f"{paper}/{name}" for paper, several in wanted.items() for name in several.split()}
    assert names | {"quickstart"} <= set(NAMES)


@pytest.mark.parametrize(("name", "scale"), EVERY)
def test_a_recipe_is_consistent(name: str, scale: Scale):
    recipe = recipes.get(name, scale)
    assert recipe.name == name
    assert type(recipe.model) is type(models.entry(recipe.model_name).config)
    for dataset in filter(None, (recipe.data.train, recipe.data.test)):
        assert data.is_own(dataset) or dataset == "texts.csv" or data.entry(dataset)
    assert recipe.cost
    recipes.build_loss(recipe)
    has_decoder = getattr(recipe.model, "decoder", False)
    assert has_decoder == (recipe.loss.reconstruction > 0), "a decoder that nothing trains, or none to train"
    assert all(0 < share < 1 for share in recipe.schedule.milestones)
    assert (recipe.schedule.kind == "steps") == bool(recipe.schedule.milestones)
    assert recipe.stop_at is None or recipe.data.val_size > 0, "stops on validation examples, of which there are none"
    number, other = (len(values) for values in (recipe.transforms.mean, recipe.transforms.std))
    assert number == other
    assert number in (0, getattr(recipe.model, "channels", 0))


@pytest.mark.parametrize("name", NAMES)
def test_a_claim_names_its_place_and_a_plausible_figure(name: str):
    claim = recipes.get(name).claim
    if claim.target is None:
        return
    assert re.search(r"Table \d|§\d|Fig\. \d|own aim|Papers with Code|poster|README", claim.table), claim.table
    low, high = {"error": (0.2, 20.0), "accuracy": (35.0, 99.9), "exact match": (70.0, 95.0)}[claim.metric]
    assert low <= claim.target <= high


@pytest.mark.parametrize("name", NAMES)
def test_scales_differ_and_leave_the_paper_alone(name: str):
    before = recipes.get(name)
    laptop, smoke = recipes.get(name, "laptop"), recipes.get(name, "smoke")
    assert recipes.get(name) == before == recipes.get(name, "paper")
    for small in (laptop, smoke):
        assert small.claim == before.claim
        assert small.model_name == before.model_name
        assert small.seed == before.seed
        assert small.loss.kind == before.loss.kind
        assert small.optimizer.kind == before.optimizer.kind
        assert small.routing == before.routing
    assert smoke.max_steps == 2
    assert smoke.batch_size <= 8
    assert not name.startswith("sabour2017") or laptop.epochs <= 3


@pytest.mark.parametrize(("name", "scale"), EVERY)
def test_json_and_back(name: str, scale: Scale):
    recipe = recipes.get(name, scale)
    read = recipes.from_json(json.loads(json.dumps(recipes.to_json(recipe))))
    assert read == recipe
    assert type(read.model) is type(recipe.model)
    assert repr(read) == repr(recipe)  # equality does not tell (4, 4) from [4, 4] everywhere, nor 1 from 1.0


@pytest.mark.parametrize("name", NAMES)
def test_paper_scale_has_the_papers_model(name: str):
    """Nothing of a model is changed at paper scale, except where the recipe says so itself."""
    recipe = recipes.get(name)
    registered = models.entry(recipe.model_name).config
    allowed = {
        "quickstart": {"stem_channels", "primary_caps"},
        "quickstart-small": {"stem_channels", "primary_caps", "decoder_widths"},
        "sabour2017/affnist-cnn": {"image_size", "hidden"},
        "hinton2018/smallnorb-cnn": {"image_size", "channels", "classes", "widths", "hidden"},
        "heinsen2019/smallnorb-cnn": {"image_size", "channels", "classes", "width"},
        "tsai2020/diverse-multimnist-dynamic": {"routing"},
        "comparison/cifar10": {"image_size", "channels"},
        "own/images": {"blocks", "hidden"},
        "text": {"depth", "embedding"},
        "heinsen2019/sst5-attention": {"depth", "embedding"},
        "heinsen2019/sst2-attention": {"depth", "embedding", "classes", "queries"},
        "heinsen2022/sst5-small": {"features", "caps", "pose"},
        "heinsen2022/sst2-small": {"features", "caps", "pose"},
    }
    free = allowed.get(name, set())
    if "no-decoder" in name or "capsnet" in name:
        free = {"decoder", "routing", "image_size", "channels"}
    if re.search(r"ablation|affnist-(em|dynamic)|smallnorb-(em|dynamic)", name):
        free = {"normalize", "mode", "activations", "routing", "num_iters"}
    differing = {
        field.name
        for field in dataclasses.fields(registered)
        if getattr(recipe.model, field.name) != getattr(registered, field.name)
    }
    assert differing <= free


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_fits_the_labels(name: str):
    recipe: AnyRecipe = recipes.get(name)
    several = "multimnist" in recipe.data.train
    assert (recipe.loss.decision != "argmax") == several


def test_variants_change_what_they_say():
    def of(name: str, field: str):
        found = recipes.differences(recipes.get("sabour2017/mnist"), recipes.get(name))
        return {one.field: one.after for one in found}[field]

    assert of("sabour2017/mnist-1-iter", "routing.num_iters") == 1
    assert of("sabour2017/mnist-no-decoder", "model.decoder") is False
    assert recipes.get("tsai2020/cifar10-ablation-a").model.normalize is False
    assert recipes.get("tsai2020/cifar10-ablation-b").model.mode == "sequential"
    assert recipes.get("tsai2020/cifar10-ablation-c").model.activations is True
    assert recipes.get("heinsen2019/sst2").model.classes == 2


def test_heinsens_momentum_moves_opposite():
    recipe = recipes.get("heinsen2019/smallnorb")
    assert (recipe.schedule.low, recipe.optimizer.lr) == (1e-5, 5e-4)
    assert recipe.optimizer.momentum == 0.999
    assert recipe.schedule.momentum_low == pytest.approx(0.8991)
    assert recipe.schedule.warmup == 0.1


@pytest.mark.parametrize("name", ["mnist", "foo", "zhao", "MNIST", "cifar", ""])
def test_an_unknown_name_suggests_few(name: str):
    with pytest.raises(ValueError, match="did you mean") as caught:
        recipes.get(name)
    assert len(str(caught.value)) < 200
    if name == "mnist":
        assert "'sabour2017/mnist'" in str(caught.value)


def test_unknown_names_suggest_known_ones():
    with pytest.raises(ValueError, match=r"no recipe 'sabour2017/mnsit'; did you mean 'sabour2017/mnist'"):
        recipes.get("sabour2017/mnsit")
    with pytest.raises(ValueError, match="did you mean 'zhao2020/fashion-mnist'"):
        recipes.get("fashion-mnist")
    with pytest.raises(ValueError, match=r"no scale 'labtop'; did you mean 'laptop'"):
        recipes.get("quickstart", "labtop")


def test_zhaos_adam_has_the_papers_eps():
    import torch

    from torchcaps.lab.training.optimizers import build_optimizer

    for name in recipes.list("zhao2020/"):
        wanted = recipes.get(name).optimizer
        if wanted.kind == "adam":
            assert wanted.eps == 1e-7
            assert build_optimizer(torch.nn.Linear(2, 2), wanted).defaults["eps"] == 1e-7
    assert recipes.get("sabour2017/mnist").optimizer.eps == 1e-8
    written = recipes.to_json(recipes.get("zhao2020/affnist"))
    del written["optimizer"]["eps"]
    assert recipes.from_json(written).optimizer.eps == 1e-8, "what older runs had"


def test_recipes_from_before_norms_of_poses_are_read_as_they_were():
    for name in ("hinton2018/smallnorb", "hinton2018/smallnorb-cnn"):
        recipe = recipes.get(name)
        written = recipes.to_json(recipe)
        for field in ("stem_strides", "pose_norm", "class_weight_std", "eps", "norm"):
            written["model"].pop(field, None)
        assert recipes.from_json(written) == recipe
    del written["model"]["hidden"]
    with pytest.raises(ValueError, match=r"recipe\.model lacks 'hidden'"):
        recipes.from_json(written)
