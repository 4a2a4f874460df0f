"""SR-CapsNet on viewpoints: from files in smallNORB's format to figures on familiar and novel views."""

import json
from pathlib import Path

import pytest

import torchcaps.lab.recipes as recipes
from tests.data.written import write_smallnorb
from torchcaps import cli
from torchcaps.lab.training import TrainOptions, train


@pytest.mark.parametrize("axis", ["azimuth", "elevation"])
def test_the_recipe_is_the_papers(axis: str):
    recipe = recipes.get(f"sr2019/smallnorb-{axis}")
    assert sum(weight.numel() for weight in recipes.build_model(recipe).parameters()) == 814_960
    assert recipe.data.train == f"smallnorb_{axis}"
    assert recipe.data.test == ""  # novel views of the same dataset
    assert recipe.data.val_size > 0  # the authors pick the checkpoint on the test set
    assert recipe.claim.target == {"azimuth": 19.86, "elevation": 15.91}[axis]
    assert recipes.get(recipe.name, "laptop").data.train == f"toys_{axis}"


@pytest.mark.parametrize("axis", ["azimuth", "elevation"])
def test_two_steps_on_files_of_smallnorb(axis: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path))
    write_smallnorb(tmp_path)
    name = f"smallnorb_{axis}"
    given = ["--data.train", name, "--data.val-size", "20", "--data.test-limit", "None"]
    recipe = recipes.fit_to_data(recipes.configure(f"sr2019/smallnorb-{axis}", "smoke", given))
    run = train(recipe, tmp_path / "run", scale="smoke", options=TrainOptions(threads=1))
    assert (run.recipe.model.channels, run.recipe.model.classes) == (1, 5)
    record = run.record()
    assert record is not None
    assert record["steps"] == 2
    assert len(run.loader("val")) == 20
    counted = {}
    for split in ("test", "familiar"):
        out = tmp_path / f"{split}.json"
        assert cli.main(["evaluate", str(run.folder), "--data", name, "--split", split, "--json", str(out)]) == 0
        counted[split] = json.loads(out.read_text())[0]
    assert {split: found["total"] for split, found in counted.items()} == {"test": 1_080, "familiar": 540}
    assert counted["test"]["correct"] / 1_080 == pytest.approx(record["metrics"]["accuracy"])
