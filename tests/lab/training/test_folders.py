"""Run folders: one owner, one recipe, one set of data; nothing lost by kills, damage or other processes."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from tests.lab.training import tiny
from tests.lab.training.test_killing import ROOT
from tests.lab.training.test_training import StopAt
from torchcaps.cli import main
from torchcaps.lab.recipes import AnyRecipe, Data
from torchcaps.lab.training import Run, StoppedError, TrainOptions, checkpoints, train
from torchcaps.lab.training.checkpoints import DamagedError, UnknownFormatError
from torchcaps.lab.training.examples import RecipeData
from torchcaps.lab.training.fingerprint import compare, fingerprint
from torchcaps.lab.training.loop import Loop
from torchcaps.lab.training.opening import RunFolder
from torchcaps.lab.training.ownership import FolderGoneError, Ownership, RunInUseError
from torchcaps.lab.training.progress import MetricsFile

HOLD = "import sys, time; from pathlib import Path; from torchcaps.lab.training.ownership import Ownership; "
HOLD += "Ownership(Path(sys.argv[1])); print('held', flush=True); time.sleep(600)"


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Run:
    return train(tiny.recipe(), tmp_path_factory.mktemp("whole") / "run", options=TrainOptions(every=1))


@pytest.fixture
def copied(whole: Run, tmp_path: Path) -> Run:
    """A finished run to spoil."""
    shutil.copytree(whole.folder, tmp_path / "run")
    return Run.open(tmp_path / "run")


def stop_at(step: int, recipe: AnyRecipe, folder: Path, monkeypatch: pytest.MonkeyPatch, **options) -> Run:
    """A run that was stopped."""
    go = Loop.go
    with monkeypatch.context() as patched:
        patched.setattr(Loop, "go", lambda self, request: go(self, StopAt(step)))
        with pytest.raises(StoppedError):
            train(recipe, folder, options=TrainOptions(every=1, **options))
    return Run.open(folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_in_use_names_the_process_that_holds_it_and_is_free_when_that_dies(whole: Run, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], env=environment, stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(RunInUseError, match=f"is in use by process {holder.pid}, which trains in it"):
            Ownership(tmp_path)
    finally:
        holder.kill()
        holder.communicate()
    Ownership(tmp_path).close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "options", [{"resume": True}, {"options": TrainOptions(overwrite=True)}], ids=["resume", "overwrite"]
)
def test_a_second_training_in_a_folder_is_refused_and_changes_nothing(tmp_path, monkeypatch, options):
    run = stop_at(2, tiny.recipe(), tmp_path / "run", monkeypatch)
    owner = Ownership(run.folder)
    before = contents(run.folder)
    with pytest.raises(RunInUseError, match=f"process {os.getpid()}"):
        train(tiny.recipe(), run.folder, **options)
    assert contents(run.folder) == before
    owner.close()
    train(tiny.recipe(), run.folder, **options)


def test_a_checkpoint_of_another_run_is_refused_by_its_recipe(copied: Run, tmp_path, monkeypatch):
    other = stop_at(2, tiny.recipe(seed=8), tmp_path / "other", monkeypatch)
    (copied.folder / "record.json").unlink()
    (copied.folder / "model.safetensors").unlink()
    for path in checkpoints.names(other.checkpoints, 2):
        shutil.copy(path, copied.checkpoints)
    wanted = f"step-00000002.json is of another run: .*{other.hash()}.*{copied.hash()}"
    with pytest.raises(ValueError, match=wanted):
        train(tiny.recipe(), copied.folder, resume=True)


def write_images(folder: Path, count: int) -> None:
    numbers = np.random.default_rng(0)
    for split in ("train", "test"):
        for number in range(count):
            path = folder / split / "abc"[number % 3] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(numbers.integers(0, 256, (28, 28), dtype=np.uint8)).save(path)


def own_images(folder: Path) -> AnyRecipe:
    data = Data(f"folder:{folder}")
    return tiny.recipe(data=data, model=replace(tiny.MODEL, classes=3), max_steps=4, epochs=9.0)


def test_data_that_changed_are_refused_with_both_values(tmp_path, monkeypatch):
    write_images(tmp_path / "images", 15)
    recipe = own_images(tmp_path / "images")
    run = stop_at(2, recipe, tmp_path / "run", monkeypatch)
    (tmp_path / "images" / "train" / "a" / "0.png").unlink()
    before = contents(run.folder)
    with pytest.raises(ValueError, match=r"the data changed .*train examples: 15 then, 14 now.*--accept-changed-data"):
        train(recipe, run.folder, resume=True)
    assert contents(run.folder) == before
    train(recipe, run.folder, resume=True, options=TrainOptions(accept_changed_data=True))
    assert run.record() is not None


def test_a_fingerprint_knows_files_classes_and_content(tmp_path):
    def take() -> dict:
        return fingerprint(RecipeData(own_images(tmp_path / "images")))

    write_images(tmp_path / "images", 15)
    first = take()
    assert take() == first
    path = tmp_path / "images" / "train" / "b" / "1.png"
    Image.fromarray(np.zeros((28, 28), dtype=np.uint8)).save(path)
    (said,) = compare(first, take())
    assert re.fullmatch(r"content of the train examples: SHA-256 \w{12}… then, \w{12}… now", said)
    for split in ("train", "test"):
        (tmp_path / "images" / split / "b").rename(tmp_path / "images" / split / "owl")
    assert "classes: a, b, c then, a, c, owl now" in compare(first, take())


def test_a_run_of_an_older_version_goes_on_and_says_what_is_not_known(whole: Run, tmp_path, monkeypatch, capsys):
    write = checkpoints.write
    with monkeypatch.context() as patched:
        patched.setattr(
            checkpoints,
            "write",
            lambda folder, step, state, tensors, origin: write(
                folder, step, {name: value for name, value in state.items() if name != "metrics_sha256"}, tensors
            ),
        )
        stop_at(3, tiny.recipe(), tmp_path / "run", monkeypatch)
    train(tiny.recipe(), tmp_path / "run", resume=True, console=Console())
    assert "whether its data are still the same is not known" in capsys.readouterr().out
    assert tiny.same_bits(tiny.weights(tmp_path / "run"), tiny.weights(whole.folder))


def test_overwriting_killed_at_any_moment_leaves_no_finished_run(whole: Run, tmp_path, monkeypatch):
    """Every change of the folder is the last one before the power goes."""
    moments = 0
    while True:
        folder = tmp_path / f"run-{moments}"
        shutil.copytree(whole.folder, folder)
        left = moments

        def counted(work):
            def call(*given, **options):
                nonlocal left
                left -= 1
                if left < 0:
                    raise KeyboardInterrupt
                return work(*given, **options)

            return call

        with monkeypatch.context() as patched:
            for name in ("unlink", "rename", "rmdir"):
                patched.setattr(os, name, counted(getattr(os, name)))
            try:
                Run.open(folder).delete()
            except KeyboardInterrupt:
                pass
            else:
                break
        moments += 1
        assert not (folder / "record.json").exists() or moments == 1
        if (folder / "recipe.json").exists():
            with pytest.raises(ValueError, match="made by another recipe"):
                train(tiny.recipe(seed=9), folder, resume=True)
        if moments in (2, 4):
            train(tiny.recipe(), folder, resume=True)
            assert tiny.same_bits(tiny.weights(folder), tiny.weights(whole.folder))
    assert moments > 6


def spoil(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)


def best_step(run: Run) -> int:
    found = checkpoints.best(run.checkpoints)
    assert found is not None
    return found.step


def test_a_lost_best_checkpoint_is_reached_again_from_before_it(whole: Run, tmp_path, monkeypatch, capsys):
    run = stop_at(7, tiny.recipe(), tmp_path / "run", monkeypatch, keep_last=9)
    best = best_step(run)
    spoil(checkpoints.names(run.checkpoints, best)[0])
    train(tiny.recipe(), run.folder, resume=True, console=Console())
    assert f"the best checkpoint is lost; going back to step {best - 1}" in capsys.readouterr().out
    assert tiny.same_bits(tiny.weights(run.folder), tiny.weights(whole.folder))
    assert tiny.untimed(run.folder) == tiny.untimed(whole.folder)
    assert list(run.checkpoints.glob("*.damaged"))


def test_a_lost_best_checkpoint_without_one_before_it_stops(tmp_path, monkeypatch):
    run = stop_at(7, tiny.recipe(), tmp_path / "run", monkeypatch, keep_last=2)
    spoil(checkpoints.names(run.checkpoints, best_step(run))[0])
    with pytest.raises(DamagedError, match="is damaged"):
        run.model()
    with pytest.raises(DamagedError, match=r"none from before it is left\. .*--overwrite.*--which last"):
        train(tiny.recipe(), run.folder, resume=True)
    run.model("last")
    assert run.record() is None


def test_checkpoints_of_another_format_are_refused_not_deleted(tmp_path, monkeypatch):
    run = stop_at(2, tiny.recipe(), tmp_path / "run", monkeypatch)
    path = checkpoints.names(run.checkpoints, 2)[1]
    path.write_text(path.read_text().replace("torchcaps-checkpoint-1", "torchcaps-checkpoint-2"))
    before = contents(run.folder)
    with pytest.raises(UnknownFormatError):
        train(tiny.recipe(), run.folder, resume=True)
    assert contents(run.folder) == before


@pytest.mark.parametrize("spoiled", [False, True], ids=["missing", "damaged"])
def test_the_final_model_is_built_again_from_the_best_checkpoint(copied: Run, capsys, spoiled):
    path = copied.folder / "model.safetensors"
    before = path.read_bytes()
    if spoiled:
        path.write_bytes(before[:100])
    else:
        path.unlink()
    train(tiny.recipe(), copied.folder, resume=True, console=Console())
    assert "built again from the best checkpoint" in capsys.readouterr().out
    assert path.read_bytes() == before
    assert path.with_name("model.safetensors.damaged").exists() == spoiled


def test_a_damaged_record_is_kept_and_made_again(copied: Run):
    path = copied.folder / "record.json"
    before = copied.record()
    path.write_text("[1, 2]")
    train(tiny.recipe(), copied.folder, resume=True)
    after = copied.record()
    assert before is not None
    assert after is not None
    assert after["metrics"] == before["metrics"]
    assert (copied.folder / "record.json.damaged").read_text() == "[1, 2]"


def test_a_folder_deleted_while_training_is_noticed_at_the_next_save(tmp_path, monkeypatch):
    save = RunFolder.save

    def delete_then_save(self: RunFolder, step: int, *given) -> None:
        if step == 2:
            shutil.rmtree(self.run.folder)
        save(self, step, *given)

    monkeypatch.setattr(RunFolder, "save", delete_then_save)
    with pytest.raises(FolderGoneError, match="was deleted, moved or replaced while training"):
        train(tiny.recipe(), tmp_path / "run", options=TrainOptions(every=1))
    assert not (tmp_path / "run").exists()


def test_a_tensorboard_that_cannot_write_ends_no_training(whole: Run, tmp_path, capsys):
    pytest.importorskip("tensorboard")
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    run = Run(tmp_path / "run", tiny.recipe())
    run.write()
    (run.folder / "tensorboard").write_text("in the way")
    train(tiny.recipe(), run.folder, resume=True, console=Console())
    assert "no events for TensorBoard from here on" in capsys.readouterr().out
    assert tiny.same_bits(tiny.weights(run.folder), tiny.weights(whole.folder))
    assert tensorboard is not None


def test_metrics_that_were_changed_are_noticed(tmp_path):
    said: list[str] = []
    first = MetricsFile(tmp_path, 0, "", 0, said.append)
    first.add({"kind": "train", "step": 1, "loss": 0.5})
    kept, sha256 = first.sync()
    first.close()
    MetricsFile(tmp_path, kept, sha256, 1, said.append).close()
    assert not said
    spoil(tmp_path / "metrics.jsonl")
    MetricsFile(tmp_path, kept, sha256, 1, said.append).close()
    assert "lines of it were changed or lost" in said[0]


@pytest.mark.parametrize(
    "change",
    [{"data": Data("no-such-data")}, {"model": replace(tiny.MODEL, kernel_size=99)}, {"stop_at": 9.0, "data": Data()}],
)
def test_a_start_that_fails_leaves_no_folder(tmp_path, change):
    with pytest.raises((ValueError, RuntimeError)):
        train(tiny.recipe(**change), tmp_path / "runs" / "run")
    assert not (tmp_path / "runs").exists()
    train(tiny.recipe(max_steps=1), tmp_path / "runs" / "run")


def test_resuming_what_is_not_there_lists_runs_nearby(whole: Run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(whole.folder, tmp_path / "runs" / "quickstart-seed0")
    assert main(["train", "--resume", "--out", "runs/quikstart-seed0"]) == 2
    said = capsys.readouterr().err
    assert "cannot resume: runs/quikstart-seed0 does not exist" in said
    assert "runs nearby:\n  runs/quickstart-seed0" in said
    assert main(["train", "quickstart", "--resume", "--seed", "77"]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["quickstart-seed0"]


def test_a_full_disk_is_named_with_its_file_and_the_run_goes_on_later(whole: Run, tmp_path, monkeypatch):
    run = stop_at(3, tiny.recipe(), tmp_path / "run", monkeypatch)

    def full(handle: int) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"cannot write .*: No space left on device; free some space"):
            train(tiny.recipe(), run.folder, resume=True)
    train(tiny.recipe(), run.folder, resume=True)
    assert tiny.same_bits(tiny.weights(run.folder), tiny.weights(whole.folder))
