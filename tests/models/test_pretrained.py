"""Trained models that come with the package: by name, with a card, and only for the configuration that they have."""

from pathlib import Path

import pytest
import torch

import torchcaps as tc
from reproduction.ship_model import make_card, ship
from tests.lab.training import tiny
from torchcaps.files import read_json, write_json
from torchcaps.lab.training import train
from torchcaps.models.pretrained import FOLDERS, list_pretrained

OWN = {"stem_channels": 48, "primary_caps": 8, "decoder_widths": (128, 256)}


@pytest.mark.parametrize("name", list_pretrained())
def test_every_trained_model_has_its_card_and_its_record(name: str):
    model = tc.models.create(name, pretrained=True)
    assert not model.training
    assert model.class_names
    assert {tensor.dtype for tensor in model.parameters()} == {torch.float32}
    record = read_json(FOLDERS / name / "record.json")
    assert model.record == record
    card = (FOLDERS / name / "README.md").read_text()
    assert card == make_card(FOLDERS / name), "python reproduction/ship_model.py --cards writes it again"
    low, high = (100 * end for end in record["metrics"]["interval"])
    assert f"95 % interval {low:.2f} to {high:.2f} %" in card
    assert f"`torchcaps train {record['recipe']}" in card
    assert f"{record['data']['sizes']['test']:,} test" in card


def test_they_are_small_together():
    assert sum(path.stat().st_size for path in FOLDERS.glob("*/*")) < 10_000_000


def test_one_is_found_by_its_name_or_by_its_configuration():
    model = tc.models.create("quickstart-small", pretrained=True)
    again = tc.models.create("sabour2017_mnist", pretrained=True, **OWN)
    assert all(map(torch.equal, model.state_dict().values(), again.state_dict().values()))
    assert tc.models.list(pretrained=True) == list_pretrained()
    assert "quickstart-small" in tc.models.list("small", pretrained=True)
    assert "quickstart-small" not in tc.models.list()
    em = tc.models.create("comparison", pretrained=True, routing="em")
    assert em.record == tc.models.create("digits-em", pretrained=True).record


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("quickstart-smal", {}, "no pretrained model 'quickstart-smal'; did you mean 'quickstart-small'"),
        ("sabour2017_mnist", {}, r"of this configuration: .*'quickstart-small' has .*stem_channels=48 \(not 256\)"),
        ("comparison", {"routing": "em", "caps": 4}, r"configuration: 'digits-em' has caps=8 \(not 4\)$"),
        ("tsai2020_diverse_multimnist", {}, "no pretrained weights for tsai2020_diverse_multimnist of this config"),
        ("quickstart-small", {"routing": "em"}, r"has routing='dynamic' \(not 'em'\); leave these out"),
        ("quickstart-small", {"routings": "em"}, "sabour2017_mnist has no 'routings'; did you mean 'routing'"),
        ("../../models", {}, "no pretrained model"),
    ],
)
def test_what_does_not_ship_is_an_error(name: str, overrides: dict, message: str):
    with pytest.raises(ValueError, match=message):
        tc.models.create(name, pretrained=True, **overrides)


def test_a_run_is_shipped_under_a_name(tmp_path: Path):
    run = train(tiny.recipe(), tmp_path / "run")
    record, other = tmp_path / "run" / "record.json", tmp_path / "other.json"
    write_json(other, {})
    with pytest.raises(ValueError, match="is not the record of"):
        ship(run, other, "tiny", tmp_path, tmp_path)
    for name in ("Tiny", "../tiny", "sabour2017_mnist"):
        with pytest.raises(ValueError, match="no name for a trained model"):
            ship(run, record, name, tmp_path, tmp_path)
    folder = ship(run, record, "tiny", tmp_path, tmp_path)
    files = ["README.md", "model.safetensors", "recipe.json", "record.json", "shipped.json"]
    assert sorted(path.name for path in folder.iterdir()) == files
    assert (folder / "README.md").read_text() == make_card(folder)
    halves = {name: tensor.half().float() for name, tensor in run.model().state_dict().items()}
    assert tiny.same_bits(tc.models.load(folder / "model.safetensors").state_dict(), halves)
