"""From a recipe to a finished run folder."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

import torchcaps.models as models
from torchcaps.files import set_aside
from torchcaps.lab.recipes import AnyRecipe
from torchcaps.lab.training import checkpoints
from torchcaps.lab.training.distributed import World, choose_device, join_processes, warnings_about
from torchcaps.lab.training.examples import RecipeData
from torchcaps.lab.training.fingerprint import compare, fingerprint
from torchcaps.lab.training.learner import Learner
from torchcaps.lab.training.loop import Loop
from torchcaps.lab.training.opening import TrainOptions, check_folder, is_finished, open_folder
from torchcaps.lab.training.ownership import Ownership
from torchcaps.lab.training.progress import Reporter, reporter
from torchcaps.lab.training.records import against_claim, make_record, write_record
from torchcaps.lab.training.run import Run
from torchcaps.lab.training.stopping import StoppedError, stop_requests
from torchcaps.terminal import format_duration


def train(
    recipe: AnyRecipe,
    folder: Path,
    *,
    scale: str = "",
    resume: bool = False,
    console: Console | None = None,
    options: TrainOptions | None = None,
    data: RecipeData | None = None,
) -> Run:
    """Train as the recipe says, into a folder: the same recipe gives the same weights, in one go or with any number of
    stops. ``resume`` goes on from the last checkpoint, or starts if there is none. Silent without a console. ``data``
    are the recipe's examples, where they have been loaded before."""
    options = options or TrainOptions()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    run = Run(Path(folder), recipe, scale, options.overrides, source=data or RecipeData(recipe))
    if resume and (run.folder / "recipe.json").is_file():  # what the record says of a run is how it was started
        begun = Run.open(run.folder)
        run = replace(run, scale=begun.scale, overrides=begun.overrides)
    with join_processes(choose_device(options.device)) as world, deterministic(world.device):
        report = reporter(console if world.main else None)
        try:
            return _train(run, resume, world, options, report)
        except StoppedError as stopped:
            raise StoppedError(f"{stopped}; to go on:\n  {options.again}") from None
        finally:
            report.stop()


def _train(run: Run, resume: bool, world: World, options: TrainOptions, report: Reporter) -> Run:
    def look() -> tuple[bool, dict[str, torch.Tensor]]:
        return check_folder(run, resume, options) and (run.folder / "record.json").is_file() and finished(run), {}

    def finished(run: Run) -> bool:
        with closing(Ownership(run.folder)):
            return is_finished(run, report) and restore_model(run, report)

    if _on_main(world, look)[0]:
        report.say(f"{run.folder} is finished already; its record: {run.folder / 'record.json'}")
        return run
    data = run.data  # data and model before the folder: what is wrong with them leaves nothing behind
    test = data.loader("test")
    learner = Learner(run.recipe, world)
    for warning in warnings_about(learner.model, world):
        report.warn(warning)
    loop = Loop(run, data, learner, world, options, report)
    with ExitStack() as stack:
        stack.enter_context(closing(loop))
        _open(loop, stack, resume, fingerprint(data))
        report.start(loop.total, loop.position.step, _about(run, loop), "texts" if run.recipe.is_text else "images")
        with stop_requests() as request:
            loop.go(request)
        return _finish(run, loop, test, options, report)


def _open(loop: Loop, stack: ExitStack, resume: bool, data: dict[str, Any]) -> None:
    """Make the run folder ready in the main process, and start all processes from where it is."""

    def work() -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        loop.folder, found = open_folder(loop.run, resume, data, loop.options, loop.report)
        stack.callback(loop.folder.close)
        started = {"data": data, "state": None if found is None else found.state}
        return started, {} if found is None else found.tensors

    started, tensors = _on_main(loop.world, work)
    if changes := compare(started["data"], data):
        raise ValueError(f"process {loop.world.rank} has other data than the first one: {'; '.join(changes)}")
    if started["state"] is not None:
        loop.restore(started["state"], tensors)


def _on_main(
    world: World, work: Callable[[], tuple[Any, dict[str, torch.Tensor]]]
) -> tuple[Any, dict[str, torch.Tensor]]:
    """What the main process gets by its work, in every process; its error ends them all."""
    state, tensors, error = None, {}, None
    if world.main:
        try:
            state, tensors = work()
        except (ValueError, OSError) as caught:
            error = caught
    (state, failed), tensors = world.from_main((state, error is not None), tensors)
    if error is not None:
        raise error
    if failed:
        raise SystemExit(2)  # the main process says why
    return state, tensors


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


def _finish(run: Run, loop: Loop, test: Any, options: TrainOptions, report: Reporter) -> Run:
    """Test the model that is kept, and write it and the record; the run, with what the model answered."""

    def best() -> tuple[None, dict[str, torch.Tensor]]:
        try:
            found = run.best_checkpoint()
        except checkpoints.DamagedError as error:
            raise checkpoints.DamagedError(f"{error}; to go back to before it:\n  {options.again}") from error
        return None, {} if found is None else run.weights_of(found)

    _, weights = _on_main(loop.world, best)
    model = loop.learner.eval_model
    if weights:
        model.load_state_dict(weights)
    found, outputs = loop.evaluate(test)
    if loop.folder is None:  # not the main process
        return run
    loop.folder.check()
    loop.line("test", found, {})
    loop.sync()
    models.save(model, run.folder / "model.safetensors", run.data.training())
    sizes = {split: len(run.data.loader(split)) for split in run.data.splits}
    write_record(run, make_record(run, loop, model, found, sizes), options.results)
    report.stop()
    report.say(against_claim(found, run.recipe.claim))
    here = loop.position
    share = here.waited / here.seconds if here.seconds else 0.0
    report.say(
        f"{here.step:,} steps in {format_duration(here.seconds)}, {share:.1%} of it waiting for examples; "
        f"run folder: {run.folder}"
    )
    return replace(run, tested=outputs) if loop.world.size == 1 else run  # of several processes, each has a part


def restore_model(run: Run, report: Reporter) -> bool:
    """See to it that a finished run has its model: one that is missing or damaged is built again from the best
    checkpoint, bit for bit."""
    path = run.folder / "model.safetensors"
    if path.exists():
        try:
            run.model()
            return True
        except ValueError as error:
            problem = f"{error}; kept as {set_aside(path, 'damaged').name}"
    else:
        problem = f"{path} is missing"
    model = run.model_of(run.checkpoint())
    recorded = (run.record() or {}).get("weights_sha256", models.checksum(model.state_dict()))
    if recorded != models.checksum(model.state_dict()):
        raise ValueError(f"{problem}, and {run.checkpoints} has no checkpoint with the weights of record.json")
    models.save(model, path, model.trained or run.data.training())
    report.warn(f"{problem}; built again from the best checkpoint")
    return True
