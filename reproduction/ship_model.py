"""Put a finished run's model into the package under a name: recipe, record, weights as float16, and card.

Usage: python reproduction/ship_model.py RUN RECORD NAME    (RECORD: the run's record, below reproduction/records)

`tc.models.create(NAME, pretrained=True)` then loads it. reproduction/write_readme_tables.py puts it into the
table of docs/hub.md. `--cards` in place of all that writes the cards again.
"""

import re
import sys
from hashlib import sha256
from pathlib import Path

import torchcaps.models as models
from torchcaps.files import read_json, write_json, write_text
from torchcaps.lab.reports.words import markdown_table
from torchcaps.lab.training import Run
from torchcaps.lab.training.examples import RecipeData
from torchcaps.models.card import write_card
from torchcaps.models.pretrained import FOLDERS, describe_pretrained, list_pretrained

ROOT = Path(__file__).resolve().parent.parent
HEAVIEST, ALL_TOGETHER = 2_000_000, 10_000_000
NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")


def ship(run: Run, record: Path, name: str, folders: Path = FOLDERS, root: Path = ROOT) -> Path:
    """Write the files into the folder of that name; a record that is not the run's, or a model too large to ship, is
    refused."""
    if not NAME.fullmatch(name) or name in models.MODELS:
        raise ValueError(f"no name for a trained model: {name!r}; write small letters, digits, '-' and '.'")
    found = run.record()
    if found is None or read_json(record) != found:
        raise ValueError(f"{record} is not the record of {run.folder}; copy the run's record.json there")
    model, folder = run.model(), folders / name
    stored = 2 * sum(tensor.numel() for tensor in model.state_dict().values())
    others = sum(path.stat().st_size for path in folders.glob("*/model.safetensors") if path.parent != folder)
    if stored >= HEAVIEST or stored + others >= ALL_TOGETHER:
        raise ValueError(f"{name} has {stored:,} bytes; ship fewer than {HEAVIEST:,}, and {ALL_TOGETHER:,} in all")
    folder.mkdir(exist_ok=True)
    path = folder / "model.safetensors"
    models.save(model.half(), path, model.trained or RecipeData(run.recipe).training())
    size = path.stat().st_size
    write_json(folder / "recipe.json", read_json(run.folder / "recipe.json"))
    # The checksum of the run's own weights is not that of their halves.
    write_json(folder / "record.json", {key: value for key, value in found.items() if key != "weights_sha256"})
    about = {"record": record.resolve().relative_to(root).as_posix(), "stored": "float16", "bytes": size}
    write_json(folder / "shipped.json", about | {"sha256": sha256(path.read_bytes()).hexdigest()})
    write_text(folder / "README.md", make_card(folder))
    return folder


def make_card(folder: Path) -> str:
    """The card of a trained model that ships."""
    model = models.load(folder / "model.safetensors")
    lines = [f'model = tc.models.create("{folder.name}", pretrained=True)', "logits = model(images).logits"]
    return write_card(model, title=folder.name, load=lines, record=read_json(folder / "record.json"))


def pretrained_table() -> str:
    """All trained models that ship, each with a link to its card, for a page of docs."""
    rows = []
    for name in list_pretrained():
        line, card = describe_pretrained(name), f"../{(FOLDERS / name).relative_to(ROOT).as_posix()}/README.md"
        size = (FOLDERS / name / "model.safetensors").stat().st_size / 1e6
        network = f"[`{line.name}`]({card})", line.routing, f"`{line.model}`", f"{line.parameters:,}"
        rows.append((*network, f"{size:.1f} MB", line.data, line.accuracy))
    columns = ("name", "routing", "network", "parameters", "size", "data", "test accuracy, 95 % interval")
    return markdown_table(columns, rows)


if __name__ == "__main__":
    if sys.argv[1:] == ["--cards"]:
        for each in list_pretrained():
            write_text(FOLDERS / each / "README.md", make_card(FOLDERS / each))
    else:
        print(f"{ship(Run.open(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])} written")
