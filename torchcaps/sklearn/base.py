"""What the estimators share: parameters, checks of arrays, training, files."""

import copy
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from rich.console import Console
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
from torch import Tensor

from torchcaps.data import ArrayDataset
from torchcaps.lab.loaders import ImageLoader
from torchcaps.lab.recipes import AnyRecipe, preprocessing_of, training_of
from torchcaps.lab.training.distributed import choose_device
from torchcaps.lab.training.in_memory import Trained, train_in_memory
from torchcaps.models import Model
from torchcaps.sklearn.images import ImageShape, Range, choose_range, choose_shape, flatten, to_images
from torchcaps.sklearn.recipe import make_recipe
from torchcaps.sklearn.saving import load_estimator, save_estimator

TURN = threading.Lock()
"""Trainings of one process take turns: torch has one random state and one number of threads for all its threads."""
MOST_SEEDS = 1 << 31
Estimator = TypeVar("Estimator", bound="CapsuleEstimator")


class CapsuleEstimator(BaseEstimator):
    """What the classifier and the encoder share: parameters, training, files."""

    n_features_in_: int
    classes_: np.ndarray
    image_shape_: ImageShape
    pixel_range_: Range
    model_: Model
    history_: list[dict[str, Any]]
    n_steps_: int

    def __init__(
        self,
        model: str = "comparison",
        *,
        routing: str | None = None,
        num_iters: int | None = None,
        model_options: Mapping[str, Any] | None = None,
        image_shape: tuple[int, ...] | None = None,
        pixel_range: tuple[float | int, float | int] | None = None,
        transforms: Mapping[str, Any] | None = None,
        loss: str | None = None,
        reconstruction: float | int = 0,
        epochs: float | int = 20,
        batch_size: int = 64,
        learning_rate: float | int = 3e-3,
        early_stopping: bool = False,
        validation_fraction: float | int = 0.1,
        n_iter_no_change: int = 5,
        random_state: Any = None,
        device: str = "",
        threads: int | None = None,
        verbose: bool | int = False,
    ) -> None:
        self.model = model
        self.routing = routing
        self.num_iters = num_iters
        self.model_options = model_options
        self.image_shape = image_shape
        self.pixel_range = pixel_range
        self.transforms = transforms
        self.loss = loss
        self.reconstruction = reconstruction
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.random_state = random_state
        self.device = device
        self.threads = threads
        self.verbose = verbose

    def fit(self: Estimator, X: Any, y: Any) -> Estimator:
        """Train a new network.

        Args:
            X: images ``(n, h, w)`` or ``(n, h, w, c)``, or flat rows ``(n, features)``.
            y: a class for each of them: numbers or strings.

        Returns:
            The estimator itself.
        """
        rows, labels = self._read(X, y, new=True)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        self._check_classes()
        seed = int(check_random_state(self.random_state).randint(MOST_SEEDS))
        chosen = {"train": np.arange(len(rows))}
        if self.early_stopping:
            chosen = self._split(numbers, seed)
        recipe = make_recipe(self, seed, len(chosen.get("val", ())))
        self._check_recipe(recipe)
        images = to_images(rows, self.image_shape_, self.pixel_range_)
        datasets = {
            split: self._dataset(images[torch.from_numpy(kept)], numbers[kept]) for split, kept in chosen.items()
        }
        self._keep(recipe, self._train(recipe, datasets))
        self._state = None
        return self

    def save(self, path: str | Path) -> None:
        """Write the network and all that predictions need to one safetensors file; nothing is pickled.

        Args:
            path: the file; with the suffix ``.safetensors``, ``torchcaps predict`` and ``tc.load`` read it too.
        """
        check_is_fitted(self)
        save_estimator(self, path)

    @classmethod
    def load(cls: type[Estimator], path: str | Path) -> Estimator:
        """The estimator of a file, which may come from a stranger: its checksum, types and sizes are checked.

        Args:
            path: a file that ``save`` wrote.

        Returns:
            The estimator, ready to predict.
        """
        return load_estimator(cls, path)

    def _read(self, X: Any, y: Any = None, *, new: bool) -> tuple[np.ndarray, Any]:
        """Rows of numbers and labels, as scikit-learn checks them; ``new`` notes the sizes rather than checks them."""
        X, shape = flatten(X, None if new else self.image_shape_)
        if y is None and not new:
            return np.asarray(validate_data(self, X, reset=False, dtype="numeric")), np.empty(0)
        given: Any = y
        checked: Any = validate_data(self, X, given, reset=new, dtype="numeric", ensure_min_samples=2 if new else 1)
        rows = checked[0]  # of the labels scikit-learn's checks make less than they are: they may be strings
        labels = column_or_1d(y, warn=True)
        check_classification_targets(labels)
        if new:
            self.image_shape_ = choose_shape(self.image_shape, shape, rows.shape[1])
            self.pixel_range_ = choose_range(self.pixel_range, rows)
        return rows, labels

    def _check_classes(self) -> None:
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class only, {self.classes_.tolist()}; a classifier needs at least two classes")

    def _check_recipe(self, recipe: AnyRecipe) -> None:
        """Whatever else the estimator wants of its network, before it is trained."""

    def _split(self, numbers: np.ndarray, seed: int) -> dict[str, np.ndarray]:
        fraction = self.validation_fraction
        if not isinstance(fraction, float) or not 0 < fraction < 1:
            raise ValueError(f"validation_fraction={fraction!r}; expected a share between 0 and 1, such as 0.1")
        everything = np.arange(len(numbers))
        train, val = train_test_split(everything, test_size=fraction, stratify=numbers, random_state=seed)
        return {"train": np.asarray(train), "val": np.asarray(val)}

    def _dataset(self, images: Tensor, numbers: np.ndarray) -> ArrayDataset:
        return ArrayDataset(
            "X", "own", self._class_names, images, torch.from_numpy(np.asarray(numbers, dtype=np.int64))
        )

    def _train(self, recipe: AnyRecipe, datasets: Any, start: Mapping[str, Tensor] | None = None) -> Trained:
        console = Console() if self.verbose else None
        with TURN, use_threads(self.threads):
            return train_in_memory(recipe, datasets, device=self.device, console=console, start=start)

    def _keep(self, recipe: AnyRecipe, trained: Trained) -> None:
        height, width, channels = self.image_shape_
        self.model_, self.history_, self.n_steps_ = trained.model, trained.metrics, trained.steps
        self.model_.trained = training_of(recipe, self._class_names, (channels, height, width))

    @property
    def _class_names(self) -> tuple[str, ...]:
        return tuple(map(str, self.classes_.tolist()))

    def _prepare(self, X: Any) -> tuple[Model, ImageLoader]:
        """The network on its device, and the examples to put into it."""
        check_is_fitted(self)
        rows, _ = self._read(X, new=False)
        self._warn_of_range(rows)
        images = to_images(rows, self.image_shape_, self.pixel_range_)
        device = choose_device(self.device)
        model = self.model_ if device.type == "cpu" else copy.deepcopy(self.model_).to(device)
        assert model.trained is not None
        transforms = preprocessing_of(model.trained, "the model")
        return model, ImageLoader(self._dataset(images, np.zeros(len(rows))), transforms)

    def _warn_of_range(self, rows: np.ndarray) -> None:
        if self.pixel_range_ == (0.0, 255.0) and rows.dtype.kind == "f" and 0 < rows.max() <= 1:
            warnings.warn(
                f"X has floats up to {rows.max():g}, and fit had bytes from 0 to 255; are these of another scale?",
                stacklevel=4,
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.three_d_array = True
        return tags


@contextmanager
def use_threads(threads: int | None) -> Iterator[None]:
    """So many threads of torch while this lasts."""
    if threads is None:
        yield
        return
    if threads < 1:
        raise ValueError(f"threads={threads}; give at least 1, or None for what torch chooses")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
