"""How to train besides the recipe, and the run folder opened for it: new, resumed, or refused with the reason."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from torchcaps.files import UNFINISHED, read_object, set_aside, write_text
from torchcaps.lab.loaders import ModelBatch
from torchcaps.lab.recipes import AnyRecipe, differences
from torchcaps.lab.training import checkpoints
from torchcaps.lab.training.checkpoints import Checkpoint, CheckpointOrigin, DamagedError
from torchcaps.lab.training.distributed import is_restart, launch_name
from torchcaps.lab.training.fingerprint import compare
from torchcaps.lab.training.ownership import NAME as LOCK
from torchcaps.lab.training.ownership import Ownership
from torchcaps.lab.training.progress import MetricsFile, Reporter
from torchcaps.lab.training.run import DELETING, LAUNCH, Run
from torchcaps.lab.training.stopping import save_batch


@dataclass(frozen=True)
class TrainOptions:
    """Where and how to train, and what to keep."""

    device: str = ""  # cpu, cuda, cuda:1; a GPU if there is one if left out
    threads: int | None = None  # threads of torch; torch's own choice if left out
    overwrite: bool = False  # delete the run that is in the folder
    accept_changed_data: bool = False  # go on with data that are not those the run was begun with
    every: int | None = None  # steps between checkpoints; else one every so many seconds
    seconds: float = 60.0  # seconds between checkpoints
    keep_last: int = 2  # checkpoints kept: the last ones, the last but one in case the last is damaged
    keep_best: int = 1  # and the best on validation examples
    doctor: bool = True  # warn once if a cheap check of torchcaps.lab.diagnosis fails while training begins
    results: Path | None = None  # folder for a copy of the record
    overrides: tuple[str, ...] = ()  # what was changed on the command line, for the record
    again: str = "train(recipe, folder, resume=True)"  # what to say to go on after a stop

    def __post_init__(self) -> None:
        for name in ("every", "threads", "keep_last", "keep_best"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name.replace('_', '-')} is {value}; give at least 1")


HARMLESS = ("checkpoints", "tensorboard", LAUNCH, LOCK)  # what a start that was killed may have left


@runtime_checkable
class Metrics(Protocol):
    """Where lines of metrics go."""

    def add(self, line: dict[str, Any]) -> None: ...

    def sync(self) -> tuple[int, str]: ...

    def close(self) -> None: ...


@runtime_checkable
class Store(Protocol):
    """Where a training keeps what it leaves behind: a run folder, or memory."""

    def open_metrics(self, kept: int, sha256: str, step: int, warn: Callable[[str], object]) -> Metrics: ...

    def save(
        self, step: int, state: Mapping[str, Any], tensors: Mapping[str, Tensor], options: TrainOptions
    ) -> None: ...

    def save_batch(self, step: int, batch: ModelBatch, indices: Tensor) -> Path | None: ...

    def check(self) -> None: ...

    def close(self) -> None: ...


@dataclass
class RunFolder:
    """A run folder that this process owns; what training saves goes through here."""

    run: Run
    owner: Ownership
    origin: CheckpointOrigin

    def open_metrics(self, kept: int, sha256: str, step: int, warn: Callable[[str], object]) -> MetricsFile:
        """The file of metrics, cut back to what the checkpoint knows of it."""
        return MetricsFile(self.run.folder, kept, sha256, step, warn)

    def save_batch(self, step: int, batch: ModelBatch, indices: Tensor) -> Path:
        """Keep a batch that made trouble, for a person to look at."""
        return save_batch(self.run.folder, step, batch, indices)

    def save(self, step: int, state: Mapping[str, Any], tensors: Mapping[str, Tensor], options: TrainOptions) -> None:
        """Write a checkpoint, and delete those that are no longer needed."""
        self.owner.check()
        folder = self.run.checkpoints
        folder.mkdir(exist_ok=True)
        checkpoints.write(folder, step, state, tensors, self.origin)
        checkpoints.tidy(folder, options.keep_last, options.keep_best)

    def check(self) -> None:
        """That the folder is still there, and this process's."""
        self.owner.check()

    def close(self) -> None:
        self.owner.close()


def check_folder(run: Run, resume: bool, options: TrainOptions) -> bool:
    """Whether there is a run to go on with; an error where training would not be allowed. Nothing is changed."""
    there = (run.folder / "recipe.json").exists()
    resume = resume or is_restart() or _is_same_launch(run.folder)
    if there and not resume and not options.overwrite:
        raise ValueError(
            f"{run.folder} has a run in it already; go on with --resume, replace it with --overwrite, or give another "
            f"folder with --out"
        )
    if there and resume:
        _check_same(Run.open(run.folder).recipe, run)
    if not there and run.folder.exists():
        _check_empty(run.folder)
    return there and resume


def _check_empty(folder: Path) -> None:
    if not folder.is_dir():
        raise ValueError(f"{folder} is a file; give a folder with --out")
    for path in folder.iterdir():
        left_behind = path.name in HARMLESS or path.suffix == UNFINISHED or path.name.startswith(DELETING)
        if not left_behind or (path.name == "checkpoints" and any(path.iterdir())):
            raise ValueError(
                f"{folder} is not empty and no run folder: it has {path.name} but no recipe.json; give another one "
                f"with --out"
            )


def _check_same(recipe: AnyRecipe, run: Run) -> None:
    changes = ", ".join(f"{one.field} was {one.before}, not {one.after}" for one in differences(recipe, run.recipe))
    if changes or recipe.name != run.recipe.name:
        raise ValueError(
            f"{run.folder} was made by another recipe ({changes or recipe.name}); resume with the same one, or start "
            f"another run with --out"
        )


def _is_same_launch(folder: Path) -> bool:
    """Whether the folder's run belongs to the torchrun job that started this process: then this is a restart."""
    written = folder / LAUNCH
    return bool(launch_name()) and written.is_file() and written.read_text() == launch_name()


def is_finished(run: Run, report: Reporter) -> bool:
    """Whether the run has its record; one that cannot be read is kept under another name, and made again."""
    path = run.folder / "record.json"
    if not path.is_file():
        return False
    try:
        read_object(path, "metrics")
    except ValueError as error:
        report.warn(f"{error}; kept as {set_aside(path, 'damaged').name}, and made again")
        return False
    return True


def open_folder(
    run: Run, resume: bool, data: dict[str, Any], options: TrainOptions, report: Reporter
) -> tuple[RunFolder, Checkpoint | None]:
    """The folder, owned by this process, and the checkpoint to go on from."""
    new = not run.folder.exists()
    run.folder.mkdir(parents=True, exist_ok=True)
    owner = Ownership(run.folder)
    try:
        there = check_folder(run, resume, options)  # again: another process may have been here meanwhile
        if not there:
            run.delete()
            run.write()
        if launch_name():
            write_text(run.folder / LAUNCH, launch_name())
        origin = CheckpointOrigin(run.hash(), data)
        found = find_checkpoint(run, origin, options, report) if there else None
        return RunFolder(run, owner, origin), found
    except BaseException:
        owner.close()
        if new:
            with suppress(OSError):  # it is not empty, and what is in it is worth keeping
                run.folder.rmdir()
        raise


def find_checkpoint(run: Run, origin: CheckpointOrigin, options: TrainOptions, report: Reporter) -> Checkpoint | None:
    """The last checkpoint that is whole and from which the best model can still be reached.

    Damaged files get another name and are kept. A best checkpoint that is lost comes back by training again from
    before it; where nothing from before it is left, this is an error.
    """
    folder = run.checkpoints
    check_origins(run)
    ahead: list[int] = []
    for step in reversed(checkpoints.steps(folder)):
        try:
            found = checkpoints.read(folder, step)
        except DamagedError as error:
            kept = ", ".join(path.name for path in checkpoints.move_aside(folder, step, "damaged"))
            report.warn(f"{error}; kept as {kept}; falling back to the checkpoint before")
            continue
        if run.recipe.weights == "best" and not checkpoints.is_best_kept(folder, found):
            ahead.append(step)
            continue
        check_data(run, found.origin, origin, options, report)
        for later in ahead:
            checkpoints.move_aside(folder, later, "aside")
        if ahead:
            report.warn(
                f"the best checkpoint is lost; going back to step {found.step:,}, before it, to reach it again "
                f"(later checkpoints are kept with names that end in .aside)"
            )
        return found
    if ahead:
        raise DamagedError(
            f"{folder}: the checkpoint with the best validation accuracy is damaged or missing, and none from before "
            f"it is left. Put it back from a copy, train again with --overwrite, or use the last one as it is: "
            f"torchcaps evaluate {run.folder} --which last"
        )
    return None


def check_origins(run: Run) -> None:
    """That no checkpoint is of another run."""
    own = run.hash()
    for step in checkpoints.steps(run.checkpoints):
        try:
            found = checkpoints.origin_of(checkpoints.describe(run.checkpoints, step)).recipe
        except DamagedError:
            continue
        if found is not None and found != own:
            raise ValueError(run.describe_stranger(step, found))


def check_data(
    run: Run, before: CheckpointOrigin, now: CheckpointOrigin, options: TrainOptions, report: Reporter
) -> None:
    """That the data are those the run was trained on so far."""
    if before.data is None or now.data is None:
        report.say(f"{run.folder} was begun by an older version: whether its data are still the same is not known")
        return
    if changes := compare(before.data, now.data):
        said = f"the data changed since {run.folder} was trained on them ({'; '.join(changes)})"
        if not options.accept_changed_data:
            raise ValueError(
                f"{said}; bring the old data back, start another run with --out, or go on with the new ones with "
                f"--accept-changed-data"
            )
        report.warn(f"{said}; going on with them as told")
