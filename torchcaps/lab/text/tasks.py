"""From a recipe to its texts: which ones, by which encoder, and as what loader.

The order by which texts are chosen is that of their hashes: it is the same for every run and machine, and texts that
two datasets share come in the same order in both, so that what was embedded for one serves the other.
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import torch

import torchcaps.data as data
from torchcaps.data import TextDataset
from torchcaps.data.base import choose_evenly
from torchcaps.lab.recipes import AnyRecipe, build_loss, change, differences
from torchcaps.lab.text.cache import EmbeddingCache, Say
from torchcaps.lab.text.encoders import Encoder, load_encoder
from torchcaps.lab.text.loader import OnTheFly, TextLoader
from torchcaps.lab.text.tables import is_table, read_table
from torchcaps.losses import ClassificationLoss, CrossEntropyLoss
from torchcaps.models import Model
from torchcaps.models.base import device_of

Split = Literal["train", "val", "test"]
TEST_SHARE = 5  # one in so many rows of a file is for testing, where no other file is
PHRASES = "_phrases"


def examples(recipe: AnyRecipe, split: Split) -> TextDataset:
    """The texts of one of a recipe's splits."""
    wanted = recipe.data
    if split == "val" and not wanted.val_size:
        raise ValueError(f"{recipe.name} has no validation examples; train it with --data.val-size 500 or so")
    if split == "test":
        return _limit(_test(recipe), wanted.test_limit)
    if split == "val" and recipe.text.validation:
        return _limit(examples_of(recipe, wanted.test or wanted.train, recipe.text.validation), wanted.val_size)
    everything = _train(recipe)
    order = _order(everything)
    aside = 0 if recipe.text.validation else wanted.val_size
    if aside >= len(order):
        raise ValueError(
            f"data.val_size={aside} of {len(order)} examples of {wanted.train}; validate on fewer than all"
        )
    if split == "val":
        return _choose(everything, sorted(order[:aside]))
    left = order[aside:]
    if wanted.limit is not None:
        if wanted.limit < 1:
            raise ValueError(f"a limit of {wanted.limit} examples; give at least 1, or leave it out for all")
        left = _sentences_first(recipe, everything, left)[: wanted.limit]
    return _choose(everything, sorted(left))


def make_loader(dataset: TextDataset, recipe: AnyRecipe, say: Say = print) -> TextLoader:
    """The loader of a dataset of texts: hidden states from the cache, which is filled first; or made on the fly."""
    encoder = shared_encoder(recipe.text.encoder)
    if not recipe.text.keep:
        return TextLoader(dataset, OnTheFly(encoder, dataset.sentences, say), recipe.transforms.mixup)
    states = shared_cache(recipe).embedded(dataset.sentences, say)
    return TextLoader(dataset, states, recipe.transforms.mixup)


def fit_to_texts(recipe: AnyRecipe, say: Callable[[str], None] | None = None) -> AnyRecipe:
    """The recipe with a model for its encoder's hidden states and its data's classes, whose names it then knows."""
    encoder = shared_encoder(recipe.text.encoder)
    classes = _train(recipe).classes
    changes: dict[str, Any] = {"depth": encoder.depth, "embedding": encoder.width, "classes": len(classes)}
    fitted = change(recipe, {f"model.{name}": value for name, value in changes.items()})
    told = ", ".join(f"{one.field} {one.before} → {one.after}" for one in differences(recipe, fitted))
    if told and say is not None:
        say(f"fitted to {recipe.text.encoder} and {recipe.data.train}: {told}")
    return change(fitted, {"text.classes": classes})


@lru_cache(maxsize=2)
def shared_encoder(name: str) -> Encoder:
    """An encoder, loaded once."""
    return load_encoder(name)


def shared_cache(recipe: AnyRecipe) -> EmbeddingCache:
    text = recipe.text
    return _cache(text.encoder, text.folder, text.precision, text.limit_gb)


@lru_cache(maxsize=4)
def _cache(encoder: str, folder: str, precision: Literal["float16", "float32"], limit_gb: float) -> EmbeddingCache:
    place = Path(folder).expanduser() if folder else None
    return EmbeddingCache(shared_encoder(encoder), place, precision, limit_gb)


def examples_of(recipe: AnyRecipe, name: str, split: str) -> TextDataset:
    """A dataset of texts by name."""
    found: Any = data.load(name, split)
    if not isinstance(found, TextDataset):
        raise ValueError(f"{name} holds images, and {recipe.name} is for texts; give a .csv, .tsv, .jsonl or sst5")
    return found


def _table(recipe: AnyRecipe, name: str, classes: tuple[str, ...] = ()) -> TextDataset:
    path = Path(name).expanduser()
    modified = path.stat().st_mtime_ns if path.exists() else 0
    return _read_table(path, modified, recipe.text.text_column, recipe.text.label_column, classes)


@lru_cache(maxsize=4)
def _read_table(
    path: Path, modified: int, text_column: str, label_column: str, classes: tuple[str, ...]
) -> TextDataset:
    return read_table(path, text_column, label_column, classes)


def _train(recipe: AnyRecipe) -> TextDataset:
    name = recipe.data.train
    if not is_table(name):
        return examples_of(recipe, name, "train")
    everything = _table(recipe, name)
    if recipe.data.test:
        return _rename(everything, "train")
    order = _order(everything)
    return _rename(_choose(everything, sorted(order[_count_tested(order) :])), "train")


def _test(recipe: AnyRecipe) -> TextDataset:
    name = recipe.data.test or recipe.data.train
    if not is_table(name):
        return examples_of(recipe, name, "test")
    if recipe.data.test:
        return _rename(_table(recipe, name, _train(recipe).classes), "test")
    everything = _table(recipe, name)
    order = _order(everything)
    return _rename(_choose(everything, sorted(order[: _count_tested(order)])), "test")


def _count_tested(order: list[int]) -> int:
    return max(1, len(order) // TEST_SHARE)


def _order(dataset: TextDataset) -> list[int]:
    return sorted(range(len(dataset)), key=lambda place: _hash(dataset.sentences[place]))


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _sentences_first(recipe: AnyRecipe, dataset: TextDataset, order: list[int]) -> list[int]:
    """Of the phrases of trees, whole sentences come first: they are what a test is made of."""
    name = recipe.data.train
    if not name.endswith(PHRASES):
        return order
    whole = set(examples_of(recipe, name.removesuffix(PHRASES), "train").sentences)
    return sorted(order, key=lambda place: dataset.sentences[place] not in whole)  # stable: the order stays inside


def _limit(dataset: TextDataset, limit: int | None) -> TextDataset:
    if limit is None or limit >= len(dataset):
        return dataset
    if limit < 1:
        raise ValueError(f"a limit of {limit} examples; give at least 1, or leave it out for all")
    return _choose(dataset, choose_evenly(limit, len(dataset)).tolist())


def _choose(dataset: TextDataset, places: Sequence[int]) -> TextDataset:
    if len(places) == len(dataset):
        return dataset
    rows = torch.tensor(places, dtype=torch.int64)
    sentences = [dataset.sentences[place] for place in places]
    metadata = {key: value[rows] for key, value in dataset.metadata.items()}
    return TextDataset(dataset.name, dataset.split, dataset.classes, sentences, dataset.labels[rows], metadata)


def _rename(dataset: TextDataset, split: str) -> TextDataset:
    return TextDataset(dataset.name, split, dataset.classes, dataset.sentences, dataset.labels, dataset.metadata)


BATCH = 32


@runtime_checkable
class TrainedRun(Protocol):
    """What is needed of a run folder."""

    @property
    def recipe(self) -> AnyRecipe: ...

    def model(self) -> Model: ...


class Predicted(NamedTuple):
    """A text, the class it was put in, and the probability of every class."""

    text: str
    label: str
    probability: dict[str, float]


def predict(run: TrainedRun, texts: Sequence[str], say: Say = print) -> list[Predicted]:
    """The classes of texts, by the model of a run."""
    recipe = run.recipe
    if not recipe.is_text:
        raise ValueError(f"{recipe.name} was trained on images, not on texts; give it image files")
    return predict_with(run.model(), recipe, texts, say)


@torch.no_grad()
def predict_with(model: Model, recipe: AnyRecipe, texts: Sequence[str], say: Say = print) -> list[Predicted]:
    """The classes of texts, by a model and the recipe that says which encoder it was trained with."""
    texts = list(texts)
    if not texts:
        raise ValueError("no text to predict; give at least one")
    states = OnTheFly(shared_encoder(recipe.text.encoder), texts, say)
    names = class_names(recipe)
    loss = build_loss(recipe)
    found: list[Predicted] = []
    model.eval()
    for part in torch.arange(len(texts)).split(BATCH):
        given = [tensor.to(device_of(model)) for tensor in states.batch(part)]
        for index, row in zip(part.tolist(), _probability(loss, model(*given).logits), strict=True):
            shares = dict(zip(names, row.tolist(), strict=True))
            found.append(Predicted(texts[index], max(shares, key=shares.__getitem__), shares))
    return found


def class_names(recipe: AnyRecipe) -> tuple[str, ...]:
    """As the training data named them; by number if the recipe does not know."""
    return recipe.text.classes or tuple(map(str, range(recipe.model.classes)))


def _probability(loss: ClassificationLoss, logits: torch.Tensor) -> torch.Tensor:
    """Softmax of what a cross-entropy was trained on; otherwise each class's own presence."""
    return logits.softmax(-1) if isinstance(loss, CrossEntropyLoss) else logits.sigmoid()
