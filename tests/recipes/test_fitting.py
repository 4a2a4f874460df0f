"""Models follow the data: sizes, channels and classes of a user's own images."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import torchcaps.recipes as recipes
from torchcaps.recipes.fitting import prepared_size


def folder(place: Path, size: tuple[int, int], classes: int, grey: bool = False, splits: tuple[str, ...] = ()) -> str:
    rows, columns = size
    for split in splits or ("",):
        for number in range(classes):
            (place / split / f"class-{number}").mkdir(parents=True)
            pixels = np.full((rows, columns) if grey else (rows, columns, 3), 40 * number, dtype=np.uint8)
            if not grey:
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
    assert said == [f"fitted to folder:{tmp_path}: model.classes 10 → 3"]
    assert recipes.build_model(recipe).image == (3, 32, 32)


def test_grey_images_and_other_sizes(tmp_path: Path):
    recipe, said = fitted("own/images", folder(tmp_path, (50, 40), 2, grey=True), "--prepare.resize", "None")
    assert (recipe.model.channels, recipe.model.image_size, recipe.model.classes) == (1, (50, 40), 2)
    assert len(said) == 1
    assert "model.image_size 32 → (50, 40)" in said[0]
    assert recipes.build_model(recipe).image == (1, 50, 40)


def test_any_recipe_follows_its_data(tmp_path: Path):
    recipe, _ = fitted("tsai2020/cifar10", "mnist_sample")
    assert (recipe.model.channels, recipe.model.image_size) == (1, 28)
    assert recipe.prepare.mean == recipe.prepare.std == ()  # those of three channels
    recipe, _ = fitted("sabour2017/cifar10", folder(tmp_path, (40, 64), 4))
    assert recipe.model.image_size == 24  # crops stay
    assert recipe.model.classes == 4
    recipe, _ = fitted("sabour2017/mnist", "multimnist:mnist_sample")
    assert recipe.model.image_size == 36


def test_nothing_changes_where_the_model_fits():
    recipe = recipes.get("quickstart")
    said: list[str] = []
    assert recipes.fit_to_data(recipe, said.append) == recipe
    assert said == []
    wide = recipes.changed(recipe, {"model.image_size": (28, 28)})
    assert recipes.fit_to_data(wide) == wide  # said in another way, but the same


def test_what_cannot_fit(tmp_path: Path):
    data = folder(tmp_path, (20, 20), 2)
    with pytest.raises(ValueError, match=r"20×20 pixels are too small for crops of 24; give --prepare.crop"):
        fitted("sabour2017/cifar10", data)
    with pytest.raises(ValueError, match="heinsen2019_sst5 takes no images"):
        fitted("heinsen2019/sst5", data)
    with pytest.raises(ValueError, match="no such folder"):
        recipes.fit_to_data(recipes.get("own/images"))


def test_prepared_sizes():
    prepare = recipes.Prepare
    assert prepared_size(prepare(), (28, 30)) == (28, 30)
    assert prepared_size(prepare(pad=4), (28, 30)) == (28, 30)
    assert prepared_size(prepare(resize=48, crop=32), (96, 96)) == (32, 32)
    assert prepared_size(prepare(pad=2, crop=32), (28, 28)) == (32, 32)
