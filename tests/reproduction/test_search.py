"""The search on toys: as many trials for either side of a comparison, none of which sees a test instance."""

import json
from collections import Counter
from pathlib import Path

import pytest
import torch

import torchcaps.data as data
import torchcaps.lab.recipes as recipes
from reproduction.plan import CNN_CHOSEN, EM, EM_CHOSEN
from reproduction.search_toys import best_trial, read_results, run_trial, search_table
from reproduction.toy_trials import ON_VALIDATION, TRIALS, ToyTrial, settings
from torchcaps.data.base import ArrayDataset
from torchcaps.data.catalog import DatasetEntry
from torchcaps.data.toys.catalog import CATEGORIES


def load_noise(split: str, root: Path) -> ArrayDataset:
    images = torch.randint(0, 256, (20, 2, 96, 96), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return ArrayDataset("toys_val", split, CATEGORIES, images, torch.arange(20) % 5)


@pytest.fixture
def noise(monkeypatch) -> None:
    """Toys take most of a minute to render."""
    entry = DatasetEntry("noise", load_noise, {"train": 20, "test": 20}, "free")
    monkeypatch.setitem(data.DATASETS, "toys_val", entry)


def test_every_trial_trains_and_is_scored_on_the_same_pictures():
    names = [(trial.network, trial.name) for trial in TRIALS]
    assert len(set(names)) == len({trial.folder for trial in TRIALS}) == len(names)
    for trial in TRIALS:
        recipe = recipes.configure(trial.recipe, "laptop", (*trial.options, *ON_VALIDATION))
        assert (recipe.data.train, recipe.data.test, recipe.data.limit) == ("toys_val", "", None), trial


@pytest.mark.parametrize("network", ["EM", "Heinsen"])
def test_capsules_and_their_cnn_have_as_many_trials(network: str):
    counts = Counter(trial.network for trial in TRIALS)
    assert counts[network] == counts[f"CNN beside {network}"] > 0, counts


def test_the_record_is_of_the_trials_that_are_listed():
    listed = {(trial.network, trial.name): trial for trial in TRIALS}
    found = read_results()
    assert len({(each["network"], each["name"]) for each in found}) == len(found)
    for each in found:
        trial = listed[each["network"], each["name"]]
        assert (each["recipe"], tuple(each["options"]), each["seed"]) == (trial.recipe, trial.options, trial.seed)
        assert each["accuracy"] == each["correct"] / each["total"]
        assert each["total"] == 4_860


@pytest.mark.usefixtures("noise")
def test_a_trial_is_scored_on_the_instances_kept_apart(tmp_path):
    small = ("--model.widths", "2", "2", "--model.hidden", "4", "--max-steps", "2", "--batch-size", "8")
    trial = ToyTrial("CNN", "hinton2018/smallnorb-cnn", "two steps", small)
    result = run_trial(trial, tmp_path)
    assert (result.total, result.steps) == (20, 2)
    assert result.accuracy == result.correct / 20
    written = (tmp_path / trial.folder / "metrics.jsonl").read_text().splitlines()
    assert result.training_accuracy == [json.loads(line) for line in written if '"train"' in line][-1]["accuracy"]


@pytest.mark.usefixtures("noise")
def test_a_trial_that_would_see_other_toys_is_refused(tmp_path):
    trial = ToyTrial("CNN", "hinton2018/smallnorb-cnn", "peeking", ("--data.test", "toys"))
    with pytest.raises(ValueError, match="a search sees toys_val alone, not toys_val and toys"):
        run_trial(trial, tmp_path)
    assert not list(tmp_path.iterdir())


def test_planned_regimes_are_those_of_the_most_accurate_trials():
    assert best_trial("EM")["name"] == EM_CHOSEN
    assert best_trial("CNN beside EM")["name"] == CNN_CHOSEN
    assert settings("EM", EM_CHOSEN)[-4:] == ("--optimizer.lr", "3e-3", "--batch-size", "16")
    assert not {"--epochs", "--max-steps"} & {*settings("EM", EM_CHOSEN), *settings("CNN beside EM", CNN_CHOSEN)}


def test_the_table_has_a_line_for_each_trial():
    lines = search_table("EM").splitlines()[2:]
    assert len(lines) == sum(trial.network == "EM" for trial in TRIALS)
    assert lines[0].startswith("| regime of before | `--epochs 2` | 1,216 | 68.22 % | 62.92 % |")


def test_the_guide_has_the_command_of_the_planned_regime():
    page = (Path(__file__).parents[2] / "docs" / "em.md").read_text(encoding="utf-8")
    start = "torchcaps train hinton2018/smallnorb --scale laptop "
    command = page.split(start)[1].split("```")[0].replace("\\\n", " ").split()
    planned = EM.item("EM").overrides("laptop")
    guide = recipes.configure("hinton2018/smallnorb", "laptop", command)
    assert guide == recipes.configure("hinton2018/smallnorb", "laptop", planned)
