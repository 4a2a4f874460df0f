"""Whole trainings, small: what they leave behind, and that the same comes out however they are cut up."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from tests.lab.training import tiny
from torchcaps.lab.recipes import AnyRecipe, Data, Loss, Optimizer, Schedule, Transforms, get
from torchcaps.lab.training import DivergedError, Run, StoppedError, TrainOptions, checkpoints, learner, train
from torchcaps.lab.training.learner import lay_out_for_cpu
from torchcaps.lab.training.loop import Loop
from torchcaps.lab.training.stopping import StopRequest
from torchcaps.losses import reconstruction_errors, reconstruction_loss
from torchcaps.models import Model, Prediction, checksum, count_parameters


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Run:
    """The tiny recipe, trained in one go."""
    return train(tiny.recipe(), tmp_path_factory.mktemp("whole") / "run")


def trained(recipe: AnyRecipe, folder: Path, **options) -> dict[str, torch.Tensor]:
    train(recipe, folder, options=TrainOptions(**options))
    return tiny.weights(folder)


def test_what_a_run_leaves_behind(whole: Run):
    names = {path.name for path in whole.folder.iterdir()} - {"tensorboard"}
    assert names == {"checkpoints", "metrics.jsonl", "model.safetensors", "recipe.json", "record.json"}
    opened = Run.open(whole.folder)
    assert opened.recipe == tiny.recipe()
    kinds = [(line["kind"], line["step"]) for line in opened.metrics()]
    steps = [[("train", step) for step in steps] for steps in ((1, 2, 3, 4), (5, 6, 7, 8))]
    assert kinds == [*steps[0], ("val", 4), *steps[1], ("val", 8), ("test", 8)]
    assert [line["examples"] for line in opened.metrics()[:4]] == [12, 24, 36, 45]
    model = opened.model()
    assert not model.training
    assert tiny.same_bits(dict(model.state_dict()), tiny.weights(whole.folder))


def test_the_record_says_what_was_reached(whole: Run):
    record = whole.record()
    assert record is not None
    test = whole.metrics()[-1]
    assert record["metrics"]["accuracy"] == test["accuracy"] == record["metrics"]["correct"] / 30
    assert record["metrics"]["error"] == pytest.approx(1 - test["accuracy"])
    low, high = record["metrics"]["interval"]
    assert low <= test["accuracy"] <= high
    assert high - low > 0.1
    assert record["data"] == {
        "train": "mnist_sample",
        "test": "mnist_sample",
        "sizes": {"train": 45, "val": 20, "test": 30},
    }
    assert (record["recipe"], record["seed"], record["steps"], record["epochs"]) == ("tiny", 3, 8, 2.0)
    assert record["parameters"] == count_parameters(whole.model())
    assert 0 <= record["input_share"] <= 1
    assert record["machine"]["processes"] == 1


def test_the_model_is_the_best_on_validation_examples(whole: Run):
    best = max((line for line in whole.metrics() if line["kind"] == "val"), key=lambda line: line["accuracy"])
    kept = checkpoints.best(whole.checkpoints)
    assert kept is not None
    assert kept.step == best["step"]
    assert tiny.same_bits(whole.weights_of(kept), tiny.weights(whole.folder))


def test_the_same_recipe_gives_the_same_bits_and_another_seed_others(whole: Run, tmp_path):
    assert tiny.same_bits(trained(tiny.recipe(), tmp_path / "again", every=1), tiny.weights(whole.folder))
    assert tiny.untimed(tmp_path / "again") == tiny.untimed(whole.folder)
    other = trained(tiny.recipe(seed=4, max_steps=1), tmp_path / "other")
    assert not tiny.same_bits(other, tiny.weights(whole.folder))


class StopAt(StopRequest):
    """A person who presses Ctrl-C in the middle of a step."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.left = step

    @property
    def made(self) -> bool:
        self.left -= 1
        return self.left == 0

    @made.setter
    def made(self, value: bool) -> None: ...


@pytest.mark.parametrize("step", [4, 7])
def test_a_stop_saves_and_a_resume_ends_the_same(whole: Run, tmp_path, monkeypatch, step):
    go = Loop.go
    monkeypatch.setattr(Loop, "go", lambda self, request: go(self, StopAt(step)))
    with pytest.raises(StoppedError, match=rf"stopped at step {step} of 8, which is saved; to go on:\n  again!"):
        train(tiny.recipe(), tmp_path / "run", options=TrainOptions(again="again!"))
    assert checkpoints.steps(tmp_path / "run" / "checkpoints")[-1] == step
    monkeypatch.undo()
    train(tiny.recipe(), tmp_path / "run", resume=True)
    assert tiny.same_bits(tiny.weights(tmp_path / "run"), tiny.weights(whole.folder))
    assert tiny.untimed(tmp_path / "run") == tiny.untimed(whole.folder)


def test_a_resume_from_a_damaged_checkpoint_takes_the_one_before(whole: Run, tmp_path, monkeypatch, capsys):
    go = Loop.go
    monkeypatch.setattr(Loop, "go", lambda self, request: go(self, StopAt(6)))
    with pytest.raises(StoppedError):
        train(tiny.recipe(), tmp_path / "run", options=TrainOptions(every=1))
    monkeypatch.undo()
    path = checkpoints.names(tmp_path / "run" / "checkpoints", 6)[0]
    path.write_bytes(path.read_bytes()[:-100])
    from rich.console import Console

    train(tiny.recipe(), tmp_path / "run", resume=True, console=Console())
    said = capsys.readouterr().out
    assert "warning" in said
    assert "step-00000006.safetensors is damaged" in said
    assert "kept as step-00000006.json.damaged, step-00000006.safetensors.damaged" in said
    assert path.with_name("step-00000006.safetensors.damaged").exists()
    assert "from step 5" in said
    assert tiny.same_bits(tiny.weights(tmp_path / "run"), tiny.weights(whole.folder))
    assert tiny.untimed(tmp_path / "run") == tiny.untimed(whole.folder)


def test_a_finished_run_is_left_alone(whole: Run):
    before = (whole.folder / "record.json").read_bytes()
    train(tiny.recipe(), whole.folder, resume=True)
    assert (whole.folder / "record.json").read_bytes() == before


def test_parts_of_a_batch_make_the_same_step(whole: Run, tmp_path):
    found = trained(tiny.recipe(grad_accum_steps=5), tmp_path / "run")
    assert 0 < tiny.largest_difference(found, tiny.weights(whole.folder)) < 1e-5


def test_the_moving_average_is_what_is_kept(tmp_path):
    """Of one step, with the first decay 1/10: a tenth of where training began, nine tenths of where it is."""
    recipe = tiny.recipe(ema=0.99, max_steps=1, data=Data("mnist_sample", limit=12, test_limit=2))
    train(recipe, tmp_path / "run")
    saved = load_file(checkpoints.names(tmp_path / "run" / "checkpoints", 1)[0])
    began = learner.build_model(recipe).state_dict()
    for name, kept in tiny.weights(tmp_path / "run").items():
        assert torch.allclose(kept, 0.1 * began[name] + 0.9 * saved[f"model.{name}"], atol=1e-7)
        assert torch.equal(kept, saved[f"ema.{name}"])


def test_gradients_are_clipped(tmp_path):
    """Plain SGD moves by the gradient: clipped to a norm of 0.001, by as much."""
    sgd = Optimizer("sgd", lr=1.0, momentum=0.0)
    recipe = tiny.recipe(clip=0.001, max_steps=1, optimizer=sgd, schedule=Schedule())
    began = learner.build_model(recipe).state_dict()
    moved = [kept - began[name] for name, kept in trained(recipe, tmp_path / "run").items()]
    assert float(torch.cat([each.flatten() for each in moved]).norm()) == pytest.approx(0.001, rel=1e-3)


def test_training_ends_early_where_it_was_told_to(tmp_path):
    run = train(tiny.recipe(stop_at=0.0), tmp_path / "run")
    record = run.record()
    assert record is not None
    assert record["steps"] == 4
    train(tiny.recipe(stop_at=0.0), tmp_path / "run", resume=True)
    with pytest.raises(ValueError, match="stop_at looks at validation examples"):
        train(tiny.recipe(stop_at=90.0, data=Data()), tmp_path / "other")


def test_validation_is_as_frequent_as_told(tmp_path):
    run = train(tiny.recipe(eval_every=3), tmp_path / "run")
    assert [line["step"] for line in run.metrics() if line["kind"] == "val"] == [3, 6, 8]
    early = train(tiny.recipe(eval_every=3, stop_at=0.0), tmp_path / "early").record()
    assert early is not None
    assert early["steps"] == 3
    with pytest.raises(ValueError, match="eval_every is 0 steps; give at least 1"):
        train(tiny.recipe(eval_every=0), tmp_path / "never")


def test_the_last_weights_are_kept_where_the_recipe_says_so(tmp_path):
    """A learning rate that ruins the weights after the first epoch: the best are those before, and are not taken."""
    late = Schedule("steps", factor=1e4, milestones=(0.5,))
    best = train(tiny.recipe(schedule=late), tmp_path / "best")
    last = train(tiny.recipe(schedule=late, weights="last"), tmp_path / "last")
    evaluated = [line["accuracy"] for line in last.metrics() if line["kind"] == "val"]
    assert evaluated[-1] < max(evaluated), "without a best before the last this shows nothing"
    assert (best.record() or {})["metrics"]["val"] == max(evaluated)
    assert (last.record() or {})["metrics"]["val"] == evaluated[-1]
    assert checksum(last.model().state_dict()) == checksum(best.model("last").state_dict())
    assert checksum(last.model().state_dict()) != checksum(best.model().state_dict())
    (tmp_path / "last" / "model.safetensors").unlink()
    again = train(last.recipe, tmp_path / "last", resume=True)
    assert checksum(again.model().state_dict()) == checksum(best.model("last").state_dict())


def test_a_lost_best_checkpoint_does_not_matter_where_the_last_is_kept(tmp_path):
    late = Schedule("steps", factor=1e4, milestones=(0.5,))
    run = train(tiny.recipe(schedule=late, weights="last"), tmp_path / "run")
    wanted = checksum(run.model().state_dict())
    (tmp_path / "run" / "record.json").unlink()
    for path in run.checkpoints.glob("step-00000004.*"):
        path.unlink()
    assert checksum(train(run.recipe, tmp_path / "run", resume=True).model().state_dict()) == wanted


def test_training_ends_after_its_patience(tmp_path):
    still = Optimizer("adam", lr=1e-12)  # the accuracy stays what the first evaluation found
    run = train(tiny.recipe(epochs=9.0, patience=2, optimizer=still), tmp_path / "run")
    assert [line["step"] for line in run.metrics() if line["kind"] == "val"] == [4, 8, 12]
    assert (run.record() or {})["steps"] == 12
    (tmp_path / "run" / "record.json").unlink()
    again = train(run.recipe, tmp_path / "run", resume=True).record()
    assert (again or {})["steps"] == 12, "a resumed run knows that it gave up"
    with pytest.raises(ValueError, match="patience looks at validation examples"):
        train(tiny.recipe(patience=2, data=Data()), tmp_path / "other")
    with pytest.raises(ValueError, match="patience is 0 evaluations; give at least 1"):
        train(tiny.recipe(patience=0), tmp_path / "other")


SMOKE = [
    "sabour2017/mnist",
    "sabour2017/multimnist",
    "hinton2018/smallnorb",
    "heinsen2019/smallnorb",
    "tsai2020/cifar10",
]


@pytest.mark.parametrize("name", SMOKE)
def test_two_steps_of_papers(tmp_path, name):
    recipe = get(name, "smoke")
    run = train(recipe, tmp_path / "run", scale="smoke")
    lines = run.metrics()
    assert [line["kind"] for line in lines] == ["train", "train", "test"]
    assert ("reconstruction" in lines[0]) == bool(recipe.loss.reconstruction)


@pytest.mark.parametrize("kind", ["margin", "cross_entropy"])
def test_mixed_images_and_short_numbers(tmp_path, kind):
    recipe = tiny.recipe(loss=Loss(kind), transforms=Transforms(mixup=0.2), precision="bfloat16", max_steps=2)
    run = train(recipe, tmp_path / "run")
    assert all(torch.isfinite(torch.tensor(line["loss"])) for line in run.metrics())


def test_a_decoder_that_is_not_taught_stays_as_it_was(tmp_path):
    recipe = tiny.recipe(model=replace(tiny.MODEL, decoder=True), max_steps=2)
    began = learner.build_model(recipe).state_dict()
    found = trained(recipe, tmp_path / "run")
    changed = {name.split(".")[0] for name in found if not torch.equal(found[name], began[name])}
    assert "decoder" not in changed
    assert changed


def test_errors_of_absent_objects_do_not_count():
    decoded, image = torch.rand(4, 1, 5, 5), torch.rand(4, 1, 5, 5)
    mean = reconstruction_errors(decoded, image, torch.ones(4, dtype=torch.bool)).mean() * 0.0005
    assert torch.allclose(mean, reconstruction_loss(decoded, image))
    decoded, image = torch.rand(4, 2, 1, 5, 5), torch.rand(4, 2, 1, 5, 5)
    alone = torch.tensor([[1, 2], [3, -1], [4, 5], [6, -1]])
    errors = reconstruction_errors(decoded, image, alone >= 0)
    assert torch.allclose(errors[1], (decoded[1, 0] - image[1, 0]).square().sum())
    assert torch.allclose(errors[0], (decoded[0] - image[0]).square().sum())


class Broken(Model):
    """Says no number from its second batch on."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(784, 10))
        self.batches = 0

    def forward(self, images: torch.Tensor) -> Prediction:
        self.batches += 1
        return Prediction(images.flatten(1) @ self.weight * (1.0 if self.batches < 2 else float("nan")))


def test_what_is_no_number_stops_with_the_batch_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(learner, "build_model", lambda recipe: Broken())
    with pytest.raises(DivergedError, match=r"(?s)step 1: .* The batch is in .*Try a lower --optimizer.lr"):
        train(tiny.recipe(), tmp_path / "run")
    batch = load_file(tmp_path / "run" / "not-finite-step-00000001.safetensors")
    assert batch["input.0"].shape == (12, 1, 28, 28)
    assert batch["indices"].shape == (12,)


def test_a_folder_with_a_run_is_not_overwritten(whole: Run, tmp_path):
    with pytest.raises(ValueError, match=r"has a run in it already; go on with --resume, replace it with --overwrite"):
        train(tiny.recipe(), whole.folder)
    with pytest.raises(ValueError, match=r"made by another recipe \(seed was 3, not 5\)"):
        train(tiny.recipe(seed=5), whole.folder, resume=True)
    (tmp_path / "mine.txt").write_text("keep me")
    with pytest.raises(ValueError, match="is not empty and no run folder"):
        train(tiny.recipe(), tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "keep me"


def test_overwriting_deletes_the_run_and_nothing_else(tmp_path):
    short = tiny.recipe(max_steps=1)
    train(short, tmp_path / "run", options=TrainOptions(every=1))
    (tmp_path / "run" / "notes.txt").write_text("mine")
    run = train(
        replace(short, seed=9), tmp_path / "run", options=TrainOptions(overwrite=True, results=tmp_path / "results")
    )
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"
    assert len(run.metrics()) == 3
    copied = json.loads((tmp_path / "results" / "tiny" / "own-seed9.json").read_text())
    assert copied == run.record()


def test_what_cannot_be_trained_is_said(tmp_path):
    with pytest.raises(ValueError, match=r"has no decoder; set --loss.reconstruction 0"):
        train(tiny.recipe(loss=Loss(reconstruction=0.1)), tmp_path / "a")
    drawing = tiny.recipe(loss=Loss(reconstruction=0.1), model=replace(tiny.MODEL, decoder=True))
    with pytest.raises(ValueError, match="mixed images cannot be reconstructed"):
        train(replace(drawing, transforms=Transforms(mixup=0.2)), tmp_path / "b")
    with pytest.raises(ValueError, match="finds no CUDA here" if not torch.cuda.is_available() else "no device"):
        train(
            tiny.recipe(), tmp_path / "c", options=TrainOptions(device="cuda" if not torch.cuda.is_available() else "x")
        )
    with pytest.raises(ValueError, match="every is 0; give at least 1"):
        TrainOptions(every=0)
    (tmp_path / "recipe.json").write_text("{}")
    with pytest.raises(ValueError, match="lacks 'format'"):
        Run.open(tmp_path)


def test_an_unfinished_run_has_a_model_as_soon_as_it_has_a_checkpoint(tmp_path):
    run = Run(tmp_path / "run", tiny.recipe())
    run.write()
    with pytest.raises(ValueError, match="has no checkpoint yet"):
        run.model()
    assert run.metrics() == []
    assert run.record() is None
    (run.folder / "metrics.jsonl").write_text('{"kind": "train"}\n{"kin')
    assert run.metrics() == [{"kind": "train"}]
    (run.folder / "metrics.jsonl").write_text('{"kind": "train"}\n[1]\n')
    with pytest.raises(ValueError, match="line 2 is no JSON object"):
        run.metrics()


def test_events_for_tensorboard(whole: Run) -> None:
    pytest.importorskip("tensorboard")
    (events,) = (whole.folder / "tensorboard").iterdir()
    assert b"loss" in events.read_bytes()


def test_convolutions_lie_channels_last_but_for_those_that_would_crash():
    def laid_out(*convolutions: nn.Conv2d) -> bool:
        lay_out_for_cpu(nn.Sequential(*convolutions))
        return all(each.weight.is_contiguous(memory_format=torch.channels_last) for each in convolutions)

    plain, strided = nn.Conv2d(16, 4, 3), nn.Conv2d(16, 8, 1, stride=2)
    assert laid_out(plain, strided, nn.Conv2d(3, 8, 1))
    assert not laid_out(nn.Conv2d(16, 4, 3), nn.Conv2d(4, 8, 1, stride=2))
