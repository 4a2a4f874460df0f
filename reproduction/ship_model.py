"""Put a finished run's model into the package: recipe, record, and weights as float16.

Usage: python reproduction/ship_model.py RUN RECORD     (RECORD: the run's record among reproduction/records/runs)
"""

import sys
from hashlib import sha256
from pathlib import Path

import torchcaps.models as models
from torchcaps.files import read_json, write_json
from torchcaps.lab.training import Run
from torchcaps.lab.training.examples import RecipeData
from torchcaps.models.pretrained import FOLDER

ROOT = Path(__file__).resolve().parent.parent
HEAVIEST = 2_000_000


def ship(run: Run, record: Path) -> None:
    """Write the files; a record that is not the run's, or a model too large to ship, is refused."""
    found = run.record()
    if found is None or read_json(record) != found:
        raise ValueError(f"{record} is not the record of {run.folder}; copy the run's record.json there")
    path = FOLDER / "model.safetensors"
    model = run.model()
    models.save(model.half(), path, model.trained or RecipeData(run.recipe).training())
    size = path.stat().st_size
    if size >= HEAVIEST:
        raise ValueError(f"{path} has {size:,} bytes; ship fewer than {HEAVIEST:,}")
    write_json(FOLDER / "recipe.json", read_json(run.folder / "recipe.json"))
    # The checksum of the run's own weights is not that of their halves.
    write_json(FOLDER / "record.json", {key: value for key, value in found.items() if key != "weights_sha256"})
    about = {"record": record.resolve().relative_to(ROOT).as_posix(), "stored": "float16", "bytes": size}
    write_json(FOLDER / "shipped.json", about | {"sha256": sha256(path.read_bytes()).hexdigest()})


if __name__ == "__main__":
    ship(Run.open(sys.argv[1]), Path(sys.argv[2]))
    print(f"{FOLDER} written")
