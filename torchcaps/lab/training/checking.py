"""Whether a run folder is whole: every file against its checksums, and what can be done with it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal

import torchcaps.models as models
from torchcaps.files import UNFINISHED, read_object
from torchcaps.lab.training import checkpoints
from torchcaps.lab.training.checkpoints import Checkpoint, DamagedError, UnknownFormatError
from torchcaps.lab.training.fingerprint import compare, fingerprint
from torchcaps.lab.training.opening import check_origins
from torchcaps.lab.training.ownership import Ownership, RunInUseError
from torchcaps.lab.training.run import DELETING, Run

State = Literal["ok", "note", "wrong"]


@dataclass(frozen=True)
class FileFinding:
    """What was found out about a file, or about what can be done with a run."""

    state: State
    what: str
    said: str = ""
    remedy: str = ""


def check_run(folder: Path) -> list[FileFinding]:
    """All that can be said of a run folder without changing it."""
    try:
        run = Run.open(folder)
    except (ValueError, OSError) as error:
        remedy = "restore recipe.json from a copy; checkpoints cannot be used without it"
        return [FileFinding("wrong", "recipe.json", str(error), remedy)]
    found = [FileFinding("ok", "recipe.json", f"{run.recipe.name}, SHA-256 {run.hash()[:12]}…")]
    found += _check_owner(run)
    found += _check_checkpoints(run)
    found += _check_metrics(run)
    found += _check_results(run)
    found += _check_data(run)
    found += _check_leftovers(run)
    return [*found, *_check_uses(run, found)]


def _resume(run: Run) -> str:
    return f"torchcaps train --resume --out {run.folder}"


def _check_owner(run: Run) -> Iterator[FileFinding]:
    if not (run.folder / ".lock").exists():
        return
    try:
        Ownership(run.folder).close()
    except RunInUseError as error:
        yield FileFinding("note", "owner", str(error))
    except OSError:  # a folder that cannot be written to has no owner
        return


def _check_checkpoints(run: Run) -> Iterator[FileFinding]:
    for step in checkpoints.steps(run.checkpoints):
        name = f"checkpoints/step-{step:08d}"
        try:
            checkpoints.read(run.checkpoints, step)
        except UnknownFormatError as error:
            yield FileFinding("wrong", name, str(error), "use the version of torchcaps that wrote it")
        except (DamagedError, OSError) as error:
            yield FileFinding(
                "wrong", name, str(error), f"{_resume(run)}   passes over it and keeps it under another name"
            )
        else:
            yield FileFinding("ok", name)
    try:
        check_origins(run)
        run.best_checkpoint()
    except UnknownFormatError:
        return
    except DamagedError as error:
        remedy = f"{_resume(run)}   goes back to before it where it can"
        yield FileFinding("wrong", "best checkpoint", str(error), remedy)
    except ValueError as error:
        yield FileFinding("wrong", "checkpoints", str(error), "move that checkpoint out of the folder")


def _check_metrics(run: Run) -> Iterator[FileFinding]:
    path = run.folder / "metrics.jsonl"
    content = path.read_bytes() if path.is_file() else b""
    lines = content.splitlines(keepends=True)
    bad = [number for number, line in enumerate(lines, 1) if not _is_line(line)]
    if bad and bad != [len(lines)]:
        yield FileFinding(
            "wrong", path.name, f"line {bad[0]} is no JSON object", "restore it from a copy, or delete the line"
        )
        return
    last = _last(run)
    if last is not None and (wanted := last.state.get("metrics_sha256")):
        kept = content[: last.state["metrics_bytes"]]
        if sha256(kept).hexdigest() != wanted:
            remedy = "restore it from a copy; training does not need it"
            yield FileFinding("wrong", path.name, "lines of it were changed or lost since the last checkpoint", remedy)
            return
    yield FileFinding("ok", path.name, f"{len(lines):,} lines")


def _is_line(line: bytes) -> bool:
    try:
        return line.endswith(b"\n") and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _check_results(run: Run) -> Iterator[FileFinding]:
    record, model = run.folder / "record.json", run.folder / "model.safetensors"
    if record.is_file():
        try:
            written = read_object(record, "metrics")
            yield from _compare_test(run, written)
        except ValueError as error:
            yield FileFinding("wrong", record.name, str(error), f"{_resume(run)}   makes it again")
    if not model.exists():
        if record.is_file():
            remedy = f"{_resume(run)}   builds it again from the best checkpoint"
            yield FileFinding("wrong", model.name, "is missing", remedy)
        return
    try:
        yield from _compare_best(run)
    except (ValueError, OSError) as error:
        yield FileFinding("wrong", model.name, str(error), f"{_resume(run)}   builds it again from the best checkpoint")


def _compare_test(run: Run, record: dict) -> Iterator[FileFinding]:
    """The record's accuracy against the line of metrics that it was made from."""
    path = run.folder / "metrics.jsonl"
    lines = path.read_bytes().splitlines() if path.is_file() else []
    tests = [
        line for line in (json.loads(line) for line in lines if _is_line(line + b"\n")) if line.get("kind") == "test"
    ]
    said = record["metrics"].get("accuracy") if isinstance(record["metrics"], dict) else None
    if tests and tests[-1].get("accuracy") != said:
        difference = f"its accuracy is {said}, that of metrics.jsonl {tests[-1].get('accuracy')}"
        yield FileFinding("wrong", "record.json", difference, f"delete it, and {_resume(run)}   makes it again")
    else:
        yield FileFinding("ok", "record.json", "" if said is None else f"test accuracy {said:.2%}")


def _compare_best(run: Run) -> Iterator[FileFinding]:
    """The final model against its own checksum, the record's, and the weights of the best checkpoint."""
    weights = models.checksum(run.model().state_dict())
    try:
        best = run.checkpoint()
    except ValueError:
        best = None
    if best is not None and models.checksum(run.weights_of(best)) != weights:
        raise ValueError(f"{run.folder / 'model.safetensors'} has not the weights of the best checkpoint")
    yield FileFinding("ok", "model.safetensors", f"SHA-256 of the weights {weights[:12]}…")


def _last(run: Run) -> Checkpoint | None:
    try:
        return checkpoints.newest(run.checkpoints)
    except (ValueError, OSError):
        return None


def _check_data(run: Run) -> Iterator[FileFinding]:
    last = _last(run)
    try:
        now = fingerprint(run.data)
    except (ValueError, OSError, ImportError) as error:
        yield FileFinding("wrong", "data", str(error), "bring the data back; predicting works without them")
        return
    if last is None or last.origin.data is None:
        yield FileFinding("note", "data", "the run has no fingerprint of its data to compare with")
    elif changes := compare(last.origin.data, now):
        remedy = f"bring the old data back, or {_resume(run)} --accept-changed-data"
        yield FileFinding("wrong", "data", f"changed since training: {'; '.join(changes)}", remedy)
    else:
        yield FileFinding("ok", "data", ", ".join(f"{each['size']:,} {split}" for split, each in now.items()))


def _check_leftovers(run: Run) -> Iterator[FileFinding]:
    for path in sorted((*run.folder.iterdir(), *run.checkpoints.glob("*"))):
        name = str(path.relative_to(run.folder))
        if path.suffix == UNFINISHED or path.name.startswith(DELETING):
            yield FileFinding("note", name, "was left by a process that was killed; it can be deleted")
        elif ".damaged" in path.name or path.name.endswith(".aside"):
            yield FileFinding("note", name, "was set aside; delete it if you do not need it")


def _check_uses(run: Run, found: list[FileFinding]) -> Iterator[FileFinding]:
    """What can be done with the run, from what was found."""
    wrong = {finding.what for finding in found if finding.state == "wrong"}
    has_data = "data" not in wrong
    try:
        run.model()
        model = ""
    except (ValueError, OSError) as error:
        model = str(error)
    finished = (run.folder / "record.json").is_file() and not wrong & {"record.json", "model.safetensors"}
    stuck = "checkpoints" in wrong or ("best checkpoint" in wrong and not _is_before_best(run)) or not has_data
    stuck = stuck or any("has the format" in finding.said for finding in found)
    yield FileFinding("ok", "can be resumed", "is finished already") if finished else _use("resumed", not stuck)
    yield _use("evaluated", not model and has_data, model or "the data are not those of the training")
    yield _use("predicted with", not model, model)


def _is_before_best(run: Run) -> bool:
    """Whether there is a checkpoint from which the lost best one can be reached again."""
    for step in checkpoints.steps(run.checkpoints):
        try:
            if checkpoints.is_best_kept(run.checkpoints, checkpoints.read(run.checkpoints, step)):
                return True
        except ValueError:
            continue
    return False


def _use(what: str, possible: bool, why: str = "") -> FileFinding:
    return FileFinding("ok", f"can be {what}") if possible else FileFinding("wrong", f"cannot be {what}", why)
