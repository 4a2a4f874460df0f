"""From a recipe to a finished run folder."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

import torchcaps.models as models
from torchcaps.recipes import AnyRecipe, differences
from torchcaps.train import checkpoints
from torchcaps.train.distributed import World, choose_device, is_restart, joined, launch_name, warnings_about
from torchcaps.train.examples import RecipeData, Split
from torchcaps.train.learner import Learner
from torchcaps.train.loop import Loop
from torchcaps.train.options import Options
from torchcaps.train.progress import Reporter, duration, reporter
from torchcaps.train.records import against_claim, make_record, write_record
from torchcaps.train.run import LAUNCH, Run
from torchcaps.train.stopping import StoppedError, stop_requests


def train(
    recipe: AnyRecipe,
    folder: Path,
    *,
    scale: str = "",
    resume: bool = False,
    console: Console | None = None,
    options: Options | None = None,
) -> Run:
    """Train as the recipe says, into a folder: the same recipe gives the same weights, in one go or with any number of
    stops. ``resume`` goes on from the last checkpoint, or starts if there is none. Silent without a console."""
    options = options or Options()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    run = Run(Path(folder), recipe, scale, options.overrides)
    with joined(choose_device(options.device)) as world, deterministic(world.device):
        report = reporter(console if world.main else None)
        try:
            return _train(run, resume, world, options, report)
        except StoppedError as stopped:
            raise StoppedError(f"{stopped}; to go on:\n  {options.again}") from None
        finally:
            report.stop()


def _train(run: Run, resume: bool, world: World, options: Options, report: Reporter) -> Run:
    opened, tensors = _opened(run, resume, world, options, report)
    if opened["finished"]:
        report.say(f"{run.folder} is finished already; its record: {run.folder / 'record.json'}")
        return run
    data = RecipeData(run.recipe)
    test = data.feed("test")  # so that what is missing is missed now, not after training
    learner = Learner(run.recipe, world)
    for warning in warnings_about(learner.model, world):
        report.warn(warning)
    loop = Loop(run, data, learner, world, options, report)
    if opened["state"] is not None:
        loop.restore(opened["state"], tensors)
    report.start(loop.total, loop.position.step, _about(run, loop), "texts" if data.is_text else "images")
    with closing(loop):
        with stop_requests() as request:
            loop.go(request)
        _finish(run, loop, test, data, options, report)
    return run


def _opened(
    run: Run, resume: bool, world: World, options: Options, report: Reporter
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The run folder made ready by the main process, and what all processes start from."""
    opened: dict[str, Any] = {"finished": False, "state": None, "error": None}
    tensors: dict[str, torch.Tensor] = {}
    if world.main:
        try:
            found = _open_folder(run, resume or is_restart() or _same_launch(run.folder), options, report)
            opened["finished"] = run.record() is not None
            if found is not None and not opened["finished"]:
                opened["state"], tensors = found.state, found.tensors
        except (ValueError, OSError) as error:
            opened["error"] = str(error)
    opened, tensors = world.from_main(opened, tensors)
    if opened["error"] is not None:
        if world.main:
            raise ValueError(opened["error"])
        raise SystemExit(2)  # the main process says why
    return opened, tensors


def _open_folder(run: Run, resume: bool, options: Options, report: Reporter) -> checkpoints.Checkpoint | None:
    """A new folder, or an old one to go on in; then its last checkpoint that is whole."""
    there = (run.folder / "recipe.json").exists()
    if there and not resume and not options.overwrite:
        raise ValueError(
            f"{run.folder} has a run in it already; go on with --resume, replace it with --overwrite, or give another "
            f"folder with --out"
        )
    if there and not resume:
        run.delete()
    if there and resume:
        _check_same(Run.open(run.folder).recipe, run)
    else:
        if not there and not resume and run.folder.is_dir() and any(run.folder.iterdir()):
            raise ValueError(f"{run.folder} is not empty and no run folder; give another one with --out")
        run.write()
    if launch_name():
        (run.folder / LAUNCH).write_text(launch_name())
    found = checkpoints.newest(run.checkpoints, report.warn)
    for step in checkpoints.steps(run.checkpoints):
        if found is None or step > found.step:
            checkpoints.delete(run.checkpoints, step)
    return found


def _check_same(recipe: AnyRecipe, run: Run) -> None:
    changes = ", ".join(f"{one.field} was {one.before}, not {one.after}" for one in differences(recipe, run.recipe))
    if changes or recipe.name != run.recipe.name:
        raise ValueError(
            f"{run.folder} was made by another recipe ({changes or recipe.name}); resume with the same one, or start "
            f"another run with --out"
        )


def _same_launch(folder: Path) -> bool:
    """Whether the folder's run belongs to the torchrun job that started this process: then this is a restart."""
    written = folder / LAUNCH
    return bool(launch_name()) and written.is_file() and written.read_text() == launch_name()


@contextmanager
def deterministic(device: torch.device) -> Iterator[None]:
    """The same bits every time: torch's CPU operations give them by themselves, its GPU operations have to be told."""
    if device.type != "cuda":
        yield
        return
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.backends.cudnn.benchmark = before[1]


def _about(run: Run, loop: Loop) -> str:
    recipe, world = run.recipe, loop.world
    examples, parameters = loop.order.examples, models.count_parameters(loop.learner.model)
    start = f", from step {loop.position.step:,}" if loop.position.step else ""
    many = f" × {world.size} processes" if world.size > 1 else ""
    return (
        f"{recipe.name}{f' ({run.scale})' if run.scale else ''}: {recipe.model_name}, {parameters:,} parameters, "
        f"{examples:,} examples of {recipe.data.train}, {loop.total:,} steps of {recipe.batch_size}{start}, "
        f"on {world.device}{many}"
    )


def _finish(run: Run, loop: Loop, test: Any, data: RecipeData, options: Options, report: Reporter) -> None:
    """Test the best model, and write it and the record."""
    best = checkpoints.best(run.checkpoints, report.warn) if loop.world.main else None
    weights = {} if best is None else run.weights_of(best)
    _, weights = loop.world.from_main(None, weights)
    model = loop.learner.judged
    if weights:
        model.load_state_dict(weights)
    found = loop.evaluate(test)
    if not loop.world.main or loop.metrics is None:
        return
    loop.line("test", found, {})
    models.save(model, run.folder / "model.safetensors", data.training())
    splits: tuple[Split, ...] = ("train", "held_out", "test") if run.recipe.data.held_out else ("train", "test")
    sizes = {split: len(data.feed(split)) for split in splits}
    write_record(run, make_record(run, loop, model, found, sizes), options.results)
    report.stop()
    report.say(against_claim(found, run.recipe.claim))
    here = loop.position
    share = here.waited / here.seconds if here.seconds else 0.0
    report.say(
        f"{here.step:,} steps in {duration(here.seconds)}, {share:.1%} of it waiting for examples; "
        f"run folder: {run.folder}"
    )
