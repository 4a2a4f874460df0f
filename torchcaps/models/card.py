"""The card of a trained model: data, accuracy with its interval, command, routing, citation, how to load it.

All of it is taken from the model and from the record of its run; where there is no record, the card says so.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from torchcaps.models.base import Model
from torchcaps.models.counting import count_parameters
from torchcaps.models.registry import entry
from torchcaps.routing import resolve
from torchcaps.terminal import printable

MARK = "<!-- Written by torchcaps from the record of the training. -->"
REPOSITORY = "https://github.com/torchcaps/torchcaps"
TAGS = ("capsule-networks", "pytorch", "torchcaps")
LONGEST = 200


def write_card(model: Model, *, title: str, load: Sequence[str], record: Mapping[str, Any] | None = None) -> str:
    """A model card in Markdown, with the metadata that model hubs read on top.

    ``load`` are the lines of Python that make the model; ``record`` is that of the model if left out.
    """
    record = (model.record if record is None else record) or {}
    parts = [
        _front_matter(model, title, record),
        f"{MARK}\n\n# {printable(title)}\n",
        _describe(model),
        _describe_training(record),
        _explain_loading(load),
        _cite(model),
    ]
    return "\n".join(parts)


def _front_matter(model: Model, title: str, record: Mapping[str, Any]) -> str:
    """JSON is YAML: nothing of a stranger's names can leave its quotes."""
    data: dict[str, Any] = {"library_name": "torchcaps", "tags": list(TAGS)}
    accuracy = _metrics(record).get("accuracy")
    if isinstance(accuracy, float):
        test = str(_data(record).get("test", "unknown"))
        result = {
            "task": {"type": "image-classification" if len(model.image) == 3 else "text-classification"},
            "dataset": {"name": test, "type": test},
            "metrics": [{"type": "accuracy", "value": accuracy}],
        }
        data["model-index"] = [{"name": title, "results": [result]}]
    lines = [f"{name}: {json.dumps(value)}" for name, value in data.items()]
    return "\n".join(["---", *lines, "---", ""])


def _describe(model: Model) -> str:
    about = entry(model.origin.name).about if model.origin else ""
    rows = {
        "Model": f"`{model.origin.name}`, {about}" if model.origin else "put together by hand",
        "Parameters": f"{count_parameters(model):,}",
        "Routing": _name_routing(model),
        "Input": " × ".join(map(str, model.image)),
        "Classes": _list_classes(model.class_names),
    }
    return _table(rows)


def _name_routing(model: Model) -> str:
    config = model.origin.config if model.origin else None
    name, iterations = getattr(config, "routing", None), getattr(config, "num_iters", None)
    if name is None:
        return "none"
    kind = resolve(name)
    return f"{kind.title}, {iterations} iterations" if kind.iterates and iterations else kind.title


def _list_classes(names: Sequence[str] | None) -> str:
    if not names:
        return "not named"
    shown = ", ".join(printable(name)[:LONGEST].replace("|", "/").replace("\n", " ") for name in names[:20])
    return f"{len(names)}: {shown}{', …' if len(names) > 20 else ''}"


def _describe_training(record: Mapping[str, Any]) -> str:
    if not record:
        return "No record of a training came with this model: its data and its accuracy are not known.\n"
    metrics, data, machine = _metrics(record), _data(record), record.get("machine")
    rows = {"Data": _describe_data(data), "Test accuracy": _describe_accuracy(metrics), "Command": _command(record)}
    if isinstance(record.get("steps"), int):
        rows["Training"] = f"{record['steps']:,} steps, {float(record.get('epochs') or 0):g} epochs"
    if isinstance(machine, Mapping):
        rows["Made with"] = _plain(f"torch {record.get('torch')}, torchcaps {str(record.get('commit'))[:12]}")
    return "## Training\n\n" + _table(rows)


def _describe_data(data: Mapping[str, Any]) -> str:
    sizes = data.get("sizes")
    counted = ", ".join(f"{count:,} {split}" for split, count in sizes.items()) if isinstance(sizes, Mapping) else ""
    names = dict.fromkeys(str(data[split]) for split in ("train", "test") if data.get(split))
    return _plain(f"{' and '.join(names) or 'unknown'}{f' ({counted} examples)' if counted else ''}")


def _describe_accuracy(metrics: Mapping[str, Any]) -> str:
    if not metrics:
        return "the training was not finished, so nothing was tested"
    (low, high), total = metrics["interval"], metrics["total"]
    counted = f"{metrics['correct']:,} of {total:,}"
    return f"{100 * metrics['accuracy']:.2f} % ({counted}; 95 % interval {100 * low:.2f} to {100 * high:.2f} %)"


def _command(record: Mapping[str, Any]) -> str:
    words = ["torchcaps", "train", str(record.get("recipe", ""))]
    words += ["--scale", str(record["scale"])] if record.get("scale") else []
    words += [str(word) for word in record.get("overrides") or ()]
    if record.get("seed") and not any(word.partition("=")[0] == "--seed" for word in words):
        words += ["--seed", str(record["seed"])]
    return f"`{_plain(shlex.join(words)).replace('`', '')}`"


def _explain_loading(load: Sequence[str]) -> str:
    code = "\n".join(("import torchcaps as tc", "", *load))
    return f"## Load\n\n```python\n{code}\n```\n"


def _cite(model: Model) -> str:
    config = model.origin.config if model.origin else None
    name = getattr(config, "routing", None)
    paper = resolve(name).paper if name is not None else ""
    lines = [f"- torchcaps: capsule networks for PyTorch. {REPOSITORY}"]
    return "## Citation\n\n" + "\n".join([*([f"- {paper}"] if paper else []), *lines]) + "\n"


def _metrics(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The figures of a record, if they are all there."""
    found = record.get("metrics")
    if not isinstance(found, Mapping):
        return {}
    numbers = [found.get(name) for name in ("accuracy", "correct", "total")]
    interval = found.get("interval")
    if not all(isinstance(number, int | float) for number in numbers) or not isinstance(interval, list | tuple):
        return {}
    return found if len(interval) == 2 and all(isinstance(end, float) for end in interval) else {}


def _data(record: Mapping[str, Any]) -> Mapping[str, Any]:
    found = record.get("data")
    return found if isinstance(found, Mapping) else {}


def _table(rows: Mapping[str, str]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())]) + "\n"


def _plain(text: str) -> str:
    """A text that stays inside its cell of a table."""
    return printable(text).replace("\n", " ").replace("|", "/")
