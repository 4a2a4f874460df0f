"""``torchcaps list``: all recipes in 100 columns, and one in detail."""

import pytest

import torchcaps.lab.recipes as recipes
from torchcaps.cli import main
from torchcaps.cli.list_recipes import listing


def test_every_recipe_is_listed_within_100_columns():
    printed = listing()
    assert max(map(len, printed)) <= 100
    text = "\n".join(printed)
    for name in recipes.list():
        paper, _, rest = name.rpartition("/")
        assert f"\n  {rest} " in text or f"\n{rest} " in text
        assert not paper or f"\n{paper}/   " in text
    row = next(line for line in printed if line.startswith("  mnist "))
    assert row.split() == ["mnist", "sabour2017_mnist", "mnist", "0.25", "%", "err", "5", "min"]


def test_long_names_go_on_in_a_second_line():
    printed = listing("tsai2020/diverse-multimnist-cnn-learned")
    first = next(number for number, line in enumerate(printed) if "cnn-learned" in line)
    joined = printed[first].split()[1] + printed[first + 1].strip()
    assert joined == "cnn_tsai2020_diverse_multimnist_learned"


@pytest.mark.parametrize("name", recipes.list())
def test_details_of_one(name: str, capsys: pytest.CaptureFixture[str]):
    assert main(["list", name]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"{name}: {recipes.get(name).model_name} on ")
    assert recipes.get(name).claim.table in shown
    assert "max_steps: none → 2" in shown
    assert "\x1b" not in shown


def test_a_part_of_a_name_and_a_wrong_one(capsys: pytest.CaptureFixture[str]):
    assert main(["list", "zhao"]) == 0
    shown = capsys.readouterr().out
    assert "fashion-mnist" in shown
    assert "sabour2017/" not in shown
    assert main(["list", "sabuor2017/mnist"]) == 2
    assert "did you mean 'sabour2017/mnist'" in capsys.readouterr().err
