"""Run folders as training leaves them, of models that have learned next to nothing in no time."""

import json
from pathlib import Path

import torchcaps as tc
from torchcaps.lab import recipes
from torchcaps.lab.recipes import AnyRecipe, build_loss, build_model
from torchcaps.lab.training import Run, score
from torchcaps.lab.training.examples import RecipeData

SMALL = ("--model.stem-channels", "4", "--model.primary-caps", "2", "--model.class-pose", "4")
FEW = ("--data.test-limit", "40", "--data.val-size", "20", "--data.limit", "50")


def tiny_recipe(*changes: str, name: str = "quickstart") -> AnyRecipe:
    return recipes.configure(name, "smoke", (*SMALL, *FEW, *changes))


def tiny_run(folder: Path, *changes: str, name: str = "quickstart", recipe: AnyRecipe | None = None) -> Run:
    """A finished run whose model is as it was made."""
    run = Run(folder, recipe or tiny_recipe(*changes, name=name), "smoke", changes)
    run.write()
    model = build_model(run.recipe)
    tc.models.save(model, folder / "model.safetensors", RecipeData(run.recipe).training())
    lines = [
        {"kind": kind, "step": step, "loss": 1.0 / step, "accuracy": 1 - 0.5 / step}
        for step in (1, 2, 3)
        for kind in ("train", "val")
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = score(model, run.loader("test"), build_loss(run.recipe))
    record = {"format": 1, "seconds": 12.3, "steps": 3, "machine": {"cores": 2}, "correct": found.correct}
    (folder / "record.json").write_text(json.dumps(record))
    return run
