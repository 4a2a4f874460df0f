"""The plan of trainings at the papers' size: its recipes and options exist, and each row says how it is decided."""

from pathlib import Path

import pytest

import torchcaps.lab.recipes as recipes
from reproduction.paper_size import train_queue

TRAININGS = train_queue.trainings()


def test_every_row_says_what_is_measured_and_how_it_is_decided():
    names = [name for name, _, _ in TRAININGS]
    assert len(set(names)) == len(names)
    for _, _, entry in TRAININGS:
        assert set(entry) == {"name", "recipe", "options", "seeds", "measure", "rule", "changes"}
        assert entry["measure"]
        assert entry["rule"]


@pytest.mark.parametrize("entry", {entry["name"]: entry for _, _, entry in TRAININGS}.values(), ids=lambda e: e["name"])
def test_options_are_options_of_the_recipe(entry: dict):
    options = list(entry["options"])
    scale = "paper"
    if "--scale" in options:
        at = options.index("--scale")
        scale = options[at + 1]
        del options[at : at + 2]
    assert scale in ("paper", "laptop")
    assert recipes.configure(entry["recipe"], scale, tuple(options)) != recipes.get(entry["recipe"], scale)


def test_a_training_that_has_begun_is_resumed(tmp_path: Path):
    _, seed, entry = TRAININGS[0]
    assert "--resume" not in train_queue.command(tmp_path, seed, entry)
    (tmp_path / "recipe.json").touch()
    assert "--resume" in train_queue.command(tmp_path, seed, entry)
    assert train_queue.state(tmp_path) == "begun"


def test_only_a_part_of_the_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr("sys.argv", ["train_queue.py", str(tmp_path), "--list", "--only", "sabour2017-affnist-cnn"])
    assert train_queue.main() == 0
    assert capsys.readouterr().out.splitlines() == [
        f"waiting   sabour2017-affnist-cnn-seed{seed}" for seed in (0, 1, 2)
    ]
    monkeypatch.setattr("sys.argv", ["train_queue.py", str(tmp_path), "--only", "nothing"])
    with pytest.raises(SystemExit):
        train_queue.main()
    assert "no training begins with 'nothing'" in capsys.readouterr().err
