"""Models follow the data: sizes, channels and classes of a user's own images."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import torchcaps.lab.recipes as recipes
from torchcaps.cli.train import Train
from torchcaps.lab.recipes.fitting import prepared_size
from torchcaps.lab.recipes.own import recipe_for


def folder(place: Path, size: tuple[int, int], classes: int, gray: bool = False, splits: tuple[str, ...] = ()) -> str:
    rows, columns = size
    for split in splits or ("",):
        for number in range(classes):
            (place / split / f"class-{number}").mkdir(parents=True)
            pixels = np.full((rows, columns) if gray else (rows, columns, 3), 40 * number, dtype=np.uint8)
            if not gray:
                pixels[0, 0, 0] = 255
            Image.fromarray(pixels).save(place / split / f"class-{number}" / "1.png")
    return f"folder:{place}"


def fitted(name: str, data: str, *arguments: str) -> tuple[recipes.AnyRecipe, list[str]]:
    said: list[str] = []
    recipe = recipes.configure(name, "laptop", ["--data.train", data, *arguments])
    return recipes.fit_to_data(recipe, said.append), said


def test_own_images_of_a_folder(tmp_path: Path):
    recipe, said = fitted("own/images", folder(tmp_path, (50, 40), 3, splits=("train", "test")))
    assert recipe.model.classes == 3
    assert (recipe.model.channels, recipe.model.image_size) == (3, 32)
    assert said == [f"folder:{tmp_path}: 6 images of 3 classes", f"fitted to folder:{tmp_path}: model.classes 10 → 3"]
    assert recipes.build_model(recipe).image == (3, 32, 32)


def test_grey_images_and_other_sizes(tmp_path: Path):
    recipe, said = fitted("own/images", folder(tmp_path, (50, 40), 2, gray=True), "--transforms.resize", "None")
    assert (recipe.model.channels, recipe.model.image_size, recipe.model.classes) == (1, (50, 40), 2)
    assert "model.image_size 32 → (50, 40)" in said[-1]
    assert recipes.build_model(recipe).image == (1, 50, 40)


def test_any_recipe_follows_its_data(tmp_path: Path):
    recipe, _ = fitted("tsai2020/cifar10", "mnist_sample")
    assert (recipe.model.channels, recipe.model.image_size) == (1, 28)
    assert recipe.transforms.mean == recipe.transforms.std == ()  # those of three channels
    recipe, _ = fitted("sabour2017/cifar10", folder(tmp_path, (40, 64), 4))
    assert recipe.model.image_size == 24  # crops stay
    assert recipe.model.classes == 4
    recipe, _ = fitted("sabour2017/mnist", "multimnist:mnist_sample")
    assert recipe.model.image_size == 36


def test_mixed_sizes_become_those_of_the_model(tmp_path: Path):
    data = folder(tmp_path, (50, 40), 2)
    Image.new("RGB", (70, 20)).save(tmp_path / "class-0" / "wide.gif")
    recipe, said = fitted("own/images", data)
    assert (recipe.model.image_size, recipe.transforms.resize) == (32, 32)
    assert any("of 2 sizes from 70×20 to 40×50: the middle square of each, resized to 128×128" in line for line in said)
    recipe, said = fitted("quickstart", data)
    assert (recipe.model.image_size, recipe.transforms.resize) == (28, 28)
    assert "transforms.resize None → 28" in said[-1]


def test_damaged_images_are_named_before_training(tmp_path: Path):
    data = folder(tmp_path, (50, 40), 2)
    for name in ("a.png", "b.png"):
        path = tmp_path / "class-0" / name
        Image.effect_noise((40, 50), 50).save(path)
        path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(
        ValueError, match=r"(?s)2 damaged images, such as .*a\.png: not a whole image.*b\.png: not a whole"
    ):
        fitted("own/images", data)


def test_the_recipe_for_what_lies_at_a_path(tmp_path: Path):
    folder(tmp_path / "photos", (8, 8), 2)
    folder(tmp_path / "split", (8, 8), 2, splits=("train", "test"))
    (tmp_path / "texts").mkdir()
    for name in ("train.csv", "test.csv"):
        (tmp_path / "texts" / name).touch()
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "mine.jsonl").touch()
    (tmp_path / "x.npz").touch()
    expected = {
        "photos": ("own/images", ("--data.train", f"folder:{tmp_path}/photos")),
        "split": ("own/images", ("--data.train", f"folder:{tmp_path}/split")),
        "texts": ("text", ("--data.train", f"{tmp_path}/texts/train.csv", "--data.test", f"{tmp_path}/texts/test.csv")),
        "one": ("text", ("--data.train", f"{tmp_path}/one/mine.jsonl")),
        "one/mine.jsonl": ("text", ("--data.train", f"{tmp_path}/one/mine.jsonl")),
        "x.npz": ("own/images", ("--data.train", f"arrays:{tmp_path}/x.npz")),
    }
    for name, found in expected.items():
        assert recipe_for(str(tmp_path / name)) == found
    assert recipe_for(str(tmp_path / "nothing")) is None


def test_paths_without_anything_to_train_on(tmp_path: Path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.json").touch()
    (tmp_path / "loose").mkdir()
    for name in ("loose/1.png", "loose/2.txt", "notes.pdf"):
        (tmp_path / name).touch()
    for name, words in (
        ("run", "is a run folder; go on with: torchcaps train --resume --out"),
        ("loose", r"nothing to train on \(\.png 1, \.txt 1\); put images at .*/CLASS/NAME\.png"),
        ("loose/1.png", "name the folder of its class folders, not one image"),
        ("notes.pdf", r"expected a folder .* \.csv, \.tsv, \.jsonl of texts, or an \.npz"),
    ):
        with pytest.raises(ValueError, match=words):
            recipe_for(str(tmp_path / name))


def test_train_takes_a_path(tmp_path: Path):
    data = folder(tmp_path / "photos", (8, 8), 2)
    command = Train.parse([str(tmp_path / "photos"), "--epochs", "2", "--out", "x"])
    assert (command.recipe, command.overrides) == ("own/images", ("--data.train", data, "--epochs", "2"))
    assert Train.parse(["quickstart", "--epochs", "2"]).overrides == ("--epochs", "2")


def test_nothing_changes_where_the_model_fits():
    recipe = recipes.get("quickstart")
    said: list[str] = []
    assert recipes.fit_to_data(recipe, said.append) == recipe
    assert said == []
    wide = recipes.change(recipe, {"model.image_size": (28, 28)})
    assert recipes.fit_to_data(wide) == wide  # said in another way, but the same


def test_what_cannot_fit(tmp_path: Path):
    data = folder(tmp_path, (20, 20), 2)
    with pytest.raises(ValueError, match=r"20×20 pixels are too small for crops of 24; give --transforms.crop"):
        fitted("sabour2017/cifar10", data)
    with pytest.raises(ValueError, match="heinsen2019_sst5 takes no images"):
        fitted("heinsen2019/sst5", data)
    with pytest.raises(ValueError, match="no such folder"):
        recipes.fit_to_data(recipes.get("own/images"))


def test_prepared_sizes():
    transforms = recipes.Transforms
    assert prepared_size(transforms(), (28, 30)) == (28, 30)
    assert prepared_size(transforms(pad=4), (28, 30)) == (28, 30)
    assert prepared_size(transforms(resize=48, crop=32), (96, 96)) == (32, 32)
    assert prepared_size(transforms(pad=2, crop=32), (28, 28)) == (32, 32)
