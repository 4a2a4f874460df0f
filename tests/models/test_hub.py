"""Models in folders and on the hub: the same bits, a card from the record, and no trust in what comes back."""

import json
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from huggingface_hub import constants
from torch import nn

import torchcaps as tc
from tests.lab.training import tiny
from torchcaps.lab.training import train
from torchcaps.models.card import write_card

SMALL: dict[str, Any] = {"stem_channels": 4, "primary_caps": 1, "decoder": False}
CNN = "cnn_tsai2020_cifar10"
RECORD: dict[str, Any] = {
    "recipe": "quickstart",
    "scale": "laptop",
    "seed": 3,
    "overrides": ["--model.routing", "em"],
    "data": {"train": "mnist_sample", "test": "mnist_sample", "sizes": {"train": 4500, "test": 1000}},
    "metrics": {"accuracy": 0.975, "interval": [0.9634, 0.983], "correct": 975, "total": 1000},
    "steps": 1080,
    "epochs": 12.0,
    "torch": "2.13.0",
    "commit": "0123456789abcdef",
    "machine": {},
}


def make_model(**overrides: Any) -> tc.models.Model:
    torch.manual_seed(0)
    return tc.models.create("sabour2017_mnist", **{**SMALL, **overrides}).eval()


def same(one: nn.Module, other: nn.Module) -> bool:
    mine, theirs = one.state_dict(), other.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """As HF_HUB_OFFLINE=1 does it, which is read once, at the import."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("shipped", [True, False])
def test_a_folder_gives_the_same_bits_without_a_network(tmp_path: Path, shipped: bool):
    model = tc.models.create("quickstart-small", pretrained=True) if shipped else make_model(routing="em")
    folder = tmp_path / "new" / "folder"
    model.save_pretrained(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    again = tc.models.from_pretrained(folder)
    assert same(model, again)
    assert not again.training
    assert (again.origin, again.class_names) == (model.origin, model.class_names)
    images = torch.rand(3, *model.image)
    with torch.no_grad():
        assert torch.equal(model(images).logits, again(images).logits)
    assert same(tc.models.CapsuleNet.from_pretrained(str(folder)), model)


def test_the_card_is_written_from_the_record(tmp_path: Path):
    make_model(routing="em").save_pretrained(tmp_path, record=RECORD)
    card = (tmp_path / "README.md").read_text()
    for words in (
        "library_name: ",
        "mnist_sample (4,500 train, 1,000 test examples)",
        "97.50 % (975 of 1,000; 95 % interval 96.34 to 98.30 %)",
        "`torchcaps train quickstart --scale laptop --model.routing em --seed 3`",
        "| Routing | EM, 3 iterations |",
        "Matrix Capsules with EM Routing",
        f'tc.models.from_pretrained("{tmp_path}")',
    ):
        assert words in card, words
    data = huggingface_hub.ModelCard(card).data.to_dict()
    assert data["library_name"] == "torchcaps"
    assert data["model-index"][0]["results"][0]["metrics"] == [{"type": "accuracy", "value": 0.975}]
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["model"] == "sabour2017_mnist"
    assert config["model_config"]["routing"] == "em"


def test_a_card_without_a_record_or_of_an_unfinished_run_says_so():
    options: Any = {"title": "mine", "load": ["model = ..."]}
    assert "its data and its accuracy are not known" in write_card(make_model(), **options)
    unfinished = {name: RECORD[name] for name in ("recipe", "scale", "seed", "overrides", "data")}
    card = write_card(make_model(), **options, record=unfinished)
    assert "the training was not finished, so nothing was tested" in card
    assert "model-index" not in card
    cnn = tc.models.create(CNN, **tc.models.entry(CNN).smallest)
    assert "| Routing | none |" in write_card(cnn, **options)


def test_names_of_strangers_stay_inside_the_card():
    record = {**RECORD, "recipe": "a`|\n\x1b[2J", "data": {"train": "x\n---\n", "test": "x|y"}}
    card = write_card(make_model(), title="t", load=[], record=record)
    assert "\x1b" not in card
    assert card.count("\n---\n") == 1, "the metadata end where they should"
    assert all(line.count("|") == 3 for line in card.splitlines() if line.startswith(("| Data", "| Command")))


def test_a_model_of_a_finished_run_brings_its_record(tmp_path: Path):
    tc.load("shipped").save_pretrained(tmp_path)
    assert "995 of 1,000" in (tmp_path / "README.md").read_text()


def test_a_model_of_an_unfinished_run_says_so(tmp_path: Path):
    run = train(tiny.recipe(epochs=1.0), tmp_path / "run", scale="smoke")
    for name in ("record.json", "model.safetensors"):
        (run.folder / name).unlink()
    tc.load(run.folder).save_pretrained(tmp_path / "folder")
    card = (tmp_path / "folder" / "README.md").read_text()
    assert "the training was not finished, so nothing was tested" in card
    assert "`torchcaps train tiny --scale smoke --seed 3`" in card


def test_our_card_is_replaced_and_the_users_is_kept(tmp_path: Path):
    make_model().save_pretrained(tmp_path, record=RECORD)
    make_model().save_pretrained(tmp_path)
    assert "not known" in (tmp_path / "README.md").read_text()
    (tmp_path / "README.md").write_text("mine")
    make_model().save_pretrained(tmp_path, record=RECORD)
    assert (tmp_path / "README.md").read_text() == "mine"


def test_a_folder_of_a_stranger_is_not_trusted(tmp_path: Path):
    make_model().save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("[" * 100_000)  # not read at all
    assert same(tc.models.from_pretrained(tmp_path), make_model())
    content = bytearray((tmp_path / "model.safetensors").read_bytes())
    content[-3] ^= 1
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match="is damaged"):
        tc.models.from_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(b"a pickle")
    with pytest.raises(ValueError, match=r"has no model\.safetensors; model\.save_pretrained\(folder\) writes one"):
        tc.models.from_pretrained(tmp_path)


@pytest.mark.usefixtures("offline")
def test_wrong_places_and_models(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is a file; give a folder"):
        make_model().save_pretrained(tmp_path / "file")
    with pytest.raises(ValueError, match=r"is a file; tc\.models\.load reads those"):
        tc.models.from_pretrained(tmp_path / "file")
    for name in ("digits", "./digits", "/nowhere/at/all", "a/b/c"):
        with pytest.raises(ValueError, match="is no folder here and no name on the hub, which is like 'owner/model'"):
            tc.models.from_pretrained(name)
    with pytest.raises(ValueError, match="'a b/c' is no name on the hub"):
        tc.models.from_pretrained("a b/c")
    net = tc.models.CapsuleNet(
        image=(1, 8, 8),
        backbone=nn.Conv2d(1, 4, 3),
        primary=tc.models.Primary("matrix", caps=2, pose=(2, 2)),
        layers=[tc.models.Class(3, (2, 2), routing="fm")],
    )
    with pytest.raises(ValueError, match="put together by hand"):
        net.save_pretrained(tmp_path / "folder")
    assert not (tmp_path / "folder").exists()
    tc.models.create(CNN, **tc.models.entry(CNN).smallest).save_pretrained(tmp_path / "cnn")
    with pytest.raises(ValueError, match=r"holds a \w+, not a CapsuleNet; use Model\.from_pretrained"):
        tc.models.CapsuleNet.from_pretrained(tmp_path / "cnn")


@pytest.mark.usefixtures("offline")
def test_without_a_network_it_is_refused_in_a_line():
    message = "cannot reach the hub for nobody/nothing: HF_HUB_OFFLINE is set; unset it"
    with pytest.raises(ConnectionError, match=message):
        tc.models.from_pretrained("nobody/nothing")
    with pytest.raises(ConnectionError, match=message):
        make_model().push_to_hub("nobody/nothing", token="hf_none")


def test_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ConnectionError, match=r"cannot reach the hub for nobody/nothing .*there is no network"):
        make_model().push_to_hub("nobody/nothing", token="hf_none")


def test_an_upload_has_the_files_of_the_folder(monkeypatch: pytest.MonkeyPatch):
    seen: dict[str, Any] = {}

    def create_repo(api: Any, repo_id: str, **options: Any) -> Any:
        seen["repository"] = (repo_id, options["private"])
        return huggingface_hub.RepoUrl(f"https://huggingface.co/{repo_id}")

    def upload_folder(api: Any, *, folder_path: Path, **options: Any) -> str:
        seen["files"] = sorted(path.name for path in Path(folder_path).iterdir())
        seen["model"] = tc.models.load(Path(folder_path) / "model.safetensors")
        seen["card"] = (Path(folder_path) / "README.md").read_text()
        return "https://huggingface.co/me/digits/commit/1"

    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", create_repo)
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", upload_folder)
    model = make_model()
    assert model.push_to_hub("me/digits", RECORD, private=True).endswith("/commit/1")
    assert seen["repository"] == ("me/digits", True)
    assert seen["files"] == ["README.md", "config.json", "model.safetensors"]
    assert same(seen["model"], model)
    assert 'tc.models.from_pretrained("me/digits")' in seen["card"]
    assert "975 of 1,000" in seen["card"]


def test_a_download_is_read_like_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    make_model().save_pretrained(tmp_path)
    asked: list[Any] = []

    def download(repo_id: str, filename: str, **options: Any) -> str:
        asked.append((repo_id, filename, options["revision"]))
        return str(tmp_path / filename)

    monkeypatch.setattr("torchcaps.models.hub.hf_hub_download", download)
    assert same(tc.models.from_pretrained("me/digits", revision="v1"), make_model())
    assert asked == [("me/digits", "model.safetensors", "v1")], "and nothing else is fetched"
