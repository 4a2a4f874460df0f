"""Capsule networks with the methods that scikit-learn expects: ``fit``, ``predict``, ``transform``."""

import warnings
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.base import ClassifierMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, column_or_1d
from torch import Tensor

from torchcaps.lab.evaluation import evaluate
from torchcaps.lab.recipes import AnyRecipe, build_model, loss_of, make_loss
from torchcaps.losses import CrossEntropyLoss
from torchcaps.models import CapsuleNet
from torchcaps.sklearn.base import MOST_SEEDS, CapsuleEstimator, use_threads
from torchcaps.sklearn.images import to_images
from torchcaps.sklearn.recipe import make_recipe

PARAMETERS = """
    Args:
        model: name of a model (``tc.models.list()``) that takes images.
        routing: name of a routing, or the import path of one's own; the model's if left out.
        num_iters: iterations of routing; the model's if left out.
        model_options: further fields of the model's configuration, such as ``{"caps": 4}``.
        image_shape: ``(h, w)`` or ``(h, w, c)`` of flat rows. Left out, a square number of features is a square gray
            image, and any other a single row of pixels.
        pixel_range: what is black and what is white. Left out, it is 0 to 255 for bytes, 0 to 1 for floats within it,
            and otherwise the smallest and largest number in ``fit``.
        transforms: fields of a recipe's transforms, such as ``{"pad": 2, "rotation": 10.0}``: what is random is so in
            training only.
        loss: ``"cross_entropy"``, ``"margin"``, ``"spread"`` or ``"binary_cross_entropy"``; cross-entropy if the
            routing learns from it, otherwise the first that suits it, if left out.
        reconstruction: weight of the reconstruction loss, for models with a decoder; 0 trains none.
        epochs: passes over the examples, at most.
        batch_size: examples of one step.
        learning_rate: learning rate at its highest; it rises for a tenth of the training and falls as a cosine.
        early_stopping: set some examples aside, keep the network that is best on them, and stop when it gets no better.
        validation_fraction: share of the examples to set aside, if ``early_stopping``.
        n_iter_no_change: epochs without a better validation accuracy after which to stop, if ``early_stopping``.
        random_state: a seed, or a random state of numpy; another seed each time if left out.
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:1"``; a GPU if there is one if left out.
        threads: threads of torch; torch's own number if left out. Workers of joblib have theirs from joblib.
        verbose: show progress.
"""


class CapsuleClassifier(ClassifierMixin, CapsuleEstimator):
    __doc__ = f"""A capsule network as a scikit-learn classifier.
{PARAMETERS}
    Example:
        >>> import torchcaps as tc
        >>> digits = tc.data.load("mnist_sample", "test")
        >>> X, y = digits.images[:60, 0].numpy(), digits.labels[:60].numpy()
        >>> small = {{"widths": (8, 8), "caps": 2}}
        >>> classifier = CapsuleClassifier(routing="em", model_options=small, epochs=2, random_state=0)
        >>> classifier.fit(X, y).predict_proba(X).shape
        (60, 10)
    """

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> "CapsuleClassifier":
        """One pass over these examples, from where the weights and the optimizer are, at a constant learning rate.

        Args:
            X: images, of the shape of the first call.
            y: a class for each of them.
            classes: all classes that there will ever be; needed in the first call only.

        Returns:
            The estimator itself.
        """
        new = not hasattr(self, "model_")
        rows, labels = self._read(X, y, new=new)
        if new and classes is None:
            raise ValueError("the first call of partial_fit needs classes, all that there will ever be; got None")
        if new:
            self.classes_ = np.unique(classes)
            self._check_classes()
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes are {list(classes)} now, and were {self.classes_.tolist()} in the first call")
        unknown = np.setdiff1d(labels, self.classes_)
        if len(unknown):
            raise ValueError(
                f"y has the class {unknown.tolist()[0]!r}, which is none of classes, {self.classes_.tolist()}"
            )
        if new:
            self._first_seed = int(check_random_state(self.random_state).randint(MOST_SEEDS))
            self._passes, self._state = 0, None
        elif getattr(self, "_state", None) is None:  # after fit: its weights, and a new optimizer
            self._first_seed, self._passes = int(check_random_state(self.random_state).randint(MOST_SEEDS)), 0
            self._state = {f"model.{name}": tensor for name, tensor in self.model_.state_dict().items()}
        recipe = make_recipe(self, (self._first_seed + self._passes) % MOST_SEEDS, val_size=0, passes=1)
        images = to_images(rows, self.image_shape_, self.pixel_range_)
        numbers = np.searchsorted(self.classes_, labels)
        trained = self._train(recipe, {"train": self._dataset(images, numbers)}, self._state)
        self._keep(recipe, trained)
        self._state, self._passes = trained.state, self._passes + 1
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes.

        Args:
            X: images, or flat rows.

        Returns:
            Rows ``(n, classes)`` that sum to 1, in the order of ``classes_``: the softmax of the logits, or for losses
            of one presence for each class, the presences divided by their sum.
        """
        model, loader = self._prepare(X)
        assert model.trained is not None
        written = loss_of(model.trained, "the model")
        loss = CrossEntropyLoss() if written is None else make_loss(written)
        with use_threads(self.threads):
            logits = evaluate(model, loader, loss).logits.double()
        if not isinstance(loss, CrossEntropyLoss):
            logits = F.logsigmoid(logits)
        return logits.softmax(-1).numpy()

    def predict(self, X: Any) -> np.ndarray:
        """The most probable classes.

        Args:
            X: images, or flat rows.

        Returns:
            Classes ``(n,)``.
        """
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(-1)]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of correct predictions.

        Args:
            X: images, or flat rows.
            y: their classes; one that ``fit`` never saw is counted as wrong, with a warning.
            sample_weight: weights of the examples.

        Returns:
            The accuracy.
        """
        check_is_fitted(self)
        labels = column_or_1d(y, warn=True)
        unknown = sorted(set(labels.tolist()) - set(self.classes_.tolist()), key=str)
        if unknown:
            warnings.warn(
                f"y has the class {unknown[0]!r}, which fit never saw; its examples count as wrong. fit saw "
                f"{self.classes_.tolist()}",
                stacklevel=2,
            )
        return super().score(X, labels, sample_weight)


class CapsuleEncoder(TransformerMixin, CapsuleEstimator):
    __doc__ = f"""A capsule network as a scikit-learn transformer: from images to the poses of their class capsules.
{PARAMETERS}
    Example:
        >>> import torchcaps as tc
        >>> digits = tc.data.load("mnist_sample", "test")
        >>> X, y = digits.images[:60, 0].numpy(), digits.labels[:60].numpy()
        >>> encoder = CapsuleEncoder(model_options={{"widths": (8, 8), "caps": 2}}, epochs=2, random_state=0)
        >>> encoder.fit(X, y).transform(X).shape
        (60, 160)
    """

    def transform(self, X: Any) -> np.ndarray:
        """Poses of the class capsules.

        Args:
            X: images, or flat rows.

        Returns:
            Rows ``(n, classes × pose)``: the pose of the first class, then that of the second, and so on.
        """
        model, loader = self._prepare(X)
        poses: list[Tensor] = []
        with torch.inference_mode(), use_threads(self.threads):
            for numbers in torch.arange(len(loader)).split(128):
                inputs = loader.batch(numbers).inputs[0].to(next(model.parameters()).device)
                poses.append(model(inputs).capsules.pose.flatten(1).cpu())
        return torch.cat(poses).numpy()

    def _check_recipe(self, recipe: AnyRecipe) -> None:
        with torch.device("meta"):
            network = build_model(recipe)
        if not isinstance(network, CapsuleNet):
            raise ValueError(f"the model {self.model!r} has no capsules, so there are no poses; use CapsuleClassifier")

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns that ``transform`` returns.

        Args:
            input_features: not used; there for scikit-learn.

        Returns:
            The class and the place in its pose, such as ``"7_15"``.
        """
        check_is_fitted(self)
        assert isinstance(self.model_, CapsuleNet)
        names = [f"{name}_{place}" for name in self.classes_.tolist() for place in range(self.model_.class_pose)]
        return np.asarray(names, dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags
