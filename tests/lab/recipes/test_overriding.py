"""Overrides, as the command line gives them; and JSON that is not a recipe."""

import copy

import pytest

import torchcaps.lab.recipes as recipes
from torchcaps.lab.recipes.changes import change


def only(name: str, *arguments: str) -> dict:
    """What arguments change in a recipe."""
    after = recipes.configure(name, "laptop", arguments)
    return {one.field: one.after for one in recipes.differences(recipes.get(name, "laptop"), after)}


def test_overrides_change_what_they_name_and_nothing_else():
    assert only("sabour2017/mnist") == {}
    assert only("sabour2017/mnist", "--routing.num-iters", "1") == {"routing.num_iters": 1}
    assert only("zhao2020/affnist", "--model.routing", "em") == {"model.routing": "em"}
    assert only("tsai2020/cifar10", "--optimizer.lr", "0.01", "--epochs", "7") == {"optimizer.lr": 0.01, "epochs": 7.0}
    assert only("sabour2017/mnist", "--model.image-size", "20", "30") == {"model.image_size": (20, 30)}
    assert only("tsai2020/cifar10", "--data.limit", "None") == {"data.limit": None}
    assert only("zhao2020/cifar10", "--model.hidden", "8", "4") == {"model.hidden": (8, 4)}
    assert only("quickstart", "--model.no-decoder", "--loss.reconstruction", "0") == {
        "model.decoder": False,
        "loss.reconstruction": 0.0,
    }


@pytest.mark.parametrize("name", recipes.list())
def test_every_recipe_can_be_overridden(name: str):
    assert only(name, "--seed", "3", "--data.limit", "77") == {"seed": 3, "data.limit": 77}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model.routting", "em"], r"no option --model\.routting; did you mean --model\.routing\?"),
        (["--optimiser.lr", "0.1"], r"did you mean --optimizer\.lr\?"),
        (["--lr=0.1"], r"did you mean --optimizer\.lr\?"),
        (["--learning-rate", "0.1"], r"did you mean --optimizer\.lr\?"),
        (["--optimizer.learning_rate", "0.1"], r"did you mean --optimizer\.lr\?"),
        (["--routing", "em"], r"did you mean --model\.routing"),
        (["--epoch", "3"], r"did you mean --epochs"),
        (["--batchsize", "3"], r"did you mean --batch-size"),
        (["--num-iters", "3"], r"--routing\.num-iters"),
        (["--xyzzy", "3"], r"no option --xyzzy; \(--help shows all options\)"),
        (["--optimizer.lr", "fast"], r"--optimizer\.lr: could not convert string to float: 'fast'"),
        (["--loss.kind", "hinge"], r"invalid choice 'hinge' .*'margin', 'spread'"),
        (["--name", "mine"], "--name"),
        (["--claim.target", "1"], r"--claim\.target"),
        (["--cost", "1"], "--cost"),
        (["stray"], "stray"),
    ],
)
def test_wrong_overrides_say_what_is_wrong(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(ValueError, match=message) as caught:
        recipes.configure("sabour2017/mnist", "laptop", arguments)
    said = str(caught.value)
    assert said.startswith("sabour2017/mnist")
    assert not set("│╭╰─\n") & set(said)
    assert len(said) < 300
    assert "".join(capsys.readouterr()) == ""


def test_help_shows_fields_that_can_be_changed(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        recipes.configure("sabour2017/mnist", "laptop", ["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "torchcaps train sabour2017/mnist" in shown
    for option in ("--model.routing", "--routing.num-iters", "--optimizer.lr", "--data.train"):
        assert option in shown
    for fixed in ("--name", "--claim", "--model-name", "--cost", "{fixed}"):
        assert fixed not in shown


def test_iterations_reach_the_routing():
    recipe = recipes.configure("sabour2017/mnist", "smoke", ["--routing.num-iters", "5"])
    assert recipes.build_model(recipe).layers[0].routing.num_iters == 5  # pyright: ignore
    with pytest.raises(ValueError, match="cnn_sabour2017_mnist has no routing"):
        recipes.build_model(recipes.configure("sabour2017/mnist-cnn", "smoke", ["--routing.num-iters", "5"]))


def test_losses_are_the_recipes():
    assert recipes.build_loss(recipes.get("sabour2017/multimnist")).decision == "two_most_active"
    assert recipes.build_loss(recipes.get("tsai2020/diverse-multimnist")).decision == "threshold"
    assert recipes.build_loss(recipes.get("zhao2020/multimnist")).on == "score"  # pyright: ignore
    assert recipes.build_loss(recipes.get("hinton2018/smallnorb", "laptop")).steps == 700  # pyright: ignore
    one = recipes.change(recipes.get("own/images"), {"loss.decision": "threshold"})
    with pytest.raises(ValueError, match=r"decides on one class; got loss\.decision='threshold'"):
        recipes.build_loss(one)


def test_changes_by_dotted_names():
    recipe = recipes.get("quickstart")
    assert change(recipe, {"data.limit": 5, "seed": 2}).data.limit == 5
    assert change(recipe, {"data": recipes.Data("mnist"), "data.limit": 5}).data == recipes.Data("mnist", limit=5)
    assert recipe == recipes.get("quickstart")
    with pytest.raises(ValueError, match="Data has no field 'limmit'; did you mean 'limit'"):
        change(recipe, {"data.limmit": 5})


def written(**changes: object) -> dict:
    """A recipe as JSON with some parts replaced; ``model__routing`` stands for ``["model"]["routing"]``."""
    result = copy.deepcopy(recipes.to_json(recipes.get("tsai2020/cifar10")))
    for name, value in changes.items():
        place = result
        *path, last = name.split("__")
        for step in path:
            place = place[step]
        if value is KeyError:
            del place[last]
        else:
            place[last] = value
    return result


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epoch": 3}, "recipe has a field 'epoch' that is not known; did you mean 'epochs'"),
        ({"data__limits": 3}, r"recipe\.data has a field 'limits' .*did you mean 'limit'"),
        ({"epochs": KeyError}, "recipe lacks 'epochs'"),
        ({"model__pose": KeyError}, r"recipe\.model lacks 'pose'"),
        ({"model": [1]}, r"recipe\.model is \[1\]; expected an object"),
        ({"model_name": "tsai2020_cifar"}, "no model 'tsai2020_cifar'; did you mean"),
        ({"model_name": None}, "names its model"),
        ({"model_name": "sabour2017_mnist"}, r"recipe\.model has a field"),
        ({"seed": "0"}, r"recipe\.seed is '0'; expected int"),
        ({"seed": True}, r"recipe\.seed is True; expected int"),
        ({"batch_size": 1.5}, r"recipe\.batch_size is 1\.5; expected int"),
        ({"precision": "float16"}, "expected 'float32' or 'bfloat16'"),
        ({"data__limit": "all"}, r"recipe\.data\.limit is 'all'; expected int or null"),
        ({"model__pose": [4, 4, 4]}, r"recipe\.model\.pose is \[4, 4, 4\]"),
        ({"transforms__mean": ["a"]}, r"recipe\.transforms\.mean is 'a'; expected float"),
    ],
)
def test_json_that_is_no_recipe(changes: dict, message: str):
    with pytest.raises(ValueError, match=message):
        recipes.from_json(written(**changes))


def test_json_that_is_one():
    assert recipes.from_json(written()) == recipes.get("tsai2020/cifar10")
    assert recipes.from_json(written(epochs=3)).epochs == 3.0
    assert recipes.from_json(written(model__pose=7)).model.pose == 7
    for later in ("eval_every", "patience"):
        assert getattr(recipes.from_json(written(**{later: KeyError})), later) is None, "recipes of older runs are read"
    assert recipes.from_json(written(weights=KeyError)).weights == "best"
    with pytest.raises(ValueError, match="a recipe is a JSON object; got list"):
        recipes.from_json([])


def test_a_module_cannot_be_written_down():
    import torch

    recipe = change(recipes.get("tsai2020/cifar10"), {"model.backbone": torch.nn.Identity()})
    with pytest.raises(ValueError, match=r"model\.backbone is a Identity, which cannot be written down"):
        recipes.to_json(recipe)
