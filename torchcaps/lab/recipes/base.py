"""What an experiment is, as data: a frozen ``Recipe`` holds all that decides its outcome, and names its claim."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Literal, TypeVar

from tyro.conf import Fixed, Suppress

from torchcaps.losses import Decision

Scale = Literal["paper", "laptop", "smoke"]
"""The paper's full size; a size that says something on two cores within the hour; two steps."""

ModelConfig = TypeVar("ModelConfig")


@dataclass(frozen=True)
class Claim:
    """What the paper reports of this experiment: where, what is measured, and the figure."""

    table: str  # "Table 1, row 4"
    metric: Literal["accuracy", "error", "exact match"]
    target: float | None  # percent, as the paper prints it; None: the paper has no figure
    note: str = ""  # what else the paper says of the number: an ensemble, a standard deviation, the data


@dataclass(frozen=True)
class Data:
    """Which examples; names are those of ``torchcaps.data``."""

    train: str = "mnist_sample"
    """Dataset to train on."""
    test: str = ""
    """Dataset to test on; the one to train on if left out."""
    val_size: int = 0
    """Training examples kept aside for validation (the same ones for every seed)."""
    limit: int | None = None
    """Only so many training examples, the first of a fixed shuffle; all if left out."""
    test_limit: int | None = None
    """Only so many test examples, evenly over the test set; all if left out."""


@dataclass(frozen=True)
class Transforms:
    """From images of the dataset to inputs, in the order of these fields; what is random is so in training only."""

    resize: int | None = None
    """Side to which images are resized first."""
    pad: int = 0
    """Pixels added on every side before a crop at a random place; in evaluation the crop is in the middle."""
    fill: Literal["zeros", "edge"] = "zeros"
    """What padding is made of."""
    crop: int | None = None
    """Side of the crop; the side before padding if left out."""
    flip: bool = False
    """Mirror half of the images."""
    brightness: float = 0.0
    """Brightness changes by up to this share either way."""
    contrast: float = 0.0
    """Contrast changes by up to this share either way."""
    rotation: float = 0.0
    """Degrees of rotation, up to this either way."""
    rotation_share: float = 1.0
    """Share of the images that are rotated."""
    shift_in_margins: bool = False
    """Move what is drawn on black within its own margins, so that nothing leaves the image."""
    squish: float = 0.0
    """Images become narrower by up to this share of their width."""
    erase: int = 0
    """Side of a square that is made black at a random place; 0 for none."""
    amounts: Literal["uniform", "normal"] = "uniform"
    """How much of rotation, shift and squish: anything up to the most alike, or normally distributed with a third of
    the most as deviation."""
    standardize: bool = False
    """Each image to mean 0 and deviation 1."""
    mean: tuple[float, ...] = ()
    """Mean of each channel, subtracted; none if left out."""
    std: tuple[float, ...] = ()
    """Deviation of each channel, by which it is divided; none if left out."""
    mixup: float = 0.0
    """Parameter of the Beta distribution that mixup draws its shares from; 0 for none."""
    crops: int = 1
    """Crops over which a prediction is averaged in evaluation (1: the middle one)."""


@dataclass(frozen=True)
class Loss:
    """What is minimized."""

    kind: Literal["margin", "spread", "cross_entropy", "binary_cross_entropy", "nll"] = "margin"
    """The loss on the class scores."""
    on: Literal["presence", "score"] = "presence"
    """What the margin loss takes for a class's activation."""
    decision: Decision = "argmax"
    """How classes are decided on."""
    margin_steps: int | None = None
    """Steps over which the spread loss's margin rises evenly; the authors' sigmoid if left out."""
    reconstruction: float = 0.0
    """Weight of the sum of squared differences between image and reconstruction; 0 for none."""


@dataclass(frozen=True)
class Optimizer:
    """How weights are changed."""

    kind: Literal["adam", "adamw", "radam", "sgd"] = "adam"
    """The rule."""
    lr: float = 1e-3
    """Learning rate at its highest."""
    momentum: float = 0.9
    """Momentum of SGD, or the first β of the others."""
    beta2: float = 0.999
    """Second β of Adam and its kin."""
    eps: float = 1e-8
    """ε of Adam and its kin, added to the root of the second moment."""
    weight_decay: float = 0.0
    """Weight decay: decoupled for AdamW and RAdam, part of the gradient for the others."""
    nesterov: bool = False
    """Nesterov's momentum, for SGD."""


@dataclass(frozen=True)
class Schedule:
    """How the learning rate moves while training goes on."""

    kind: Literal["constant", "exponential", "steps", "warmup_cosine"] = "constant"
    """``exponential``: times ``factor`` every ``every`` steps. ``steps``: times ``factor`` at each of ``milestones``.
    ``warmup_cosine``: a line from ``low`` to the highest over ``warmup``, then half a cosine down to ``low`` again."""
    factor: float = 0.1
    """What the learning rate is multiplied by."""
    every: int = 2000
    """Steps between two multiplications."""
    smooth: bool = True
    """Multiply by a root at every step, rather than all at once."""
    floor: float = 0.0
    """Learning rate below which ``exponential`` does not go."""
    milestones: tuple[float, ...] = ()
    """Shares of all training at which the learning rate is multiplied."""
    warmup: float = 0.1
    """Share of all training for the rise."""
    low: float = 1e-5
    """Learning rate at both ends."""
    momentum_low: float | None = None
    """First momentum at the highest learning rate: it moves opposite to it. Constant if left out."""


@dataclass(frozen=True)
class RoutingOptions:
    """Changes to the model's routing, whatever the model calls them."""

    num_iters: int | None = None
    """Iterations of routing; the model's own if left out."""


@dataclass(frozen=True)
class Text:
    """For texts: the frozen language model whose hidden states are the inputs, and where these are kept."""

    encoder: str = ""
    """The language model: ``minilm``, ``smollm2``, a path, or a name of the hub; none for images."""
    keep: bool = True
    """Keep hidden states on disk, computed once; otherwise they are computed whenever they are needed."""
    precision: Literal["float16", "float32"] = "float16"
    """Number type on disk."""
    limit_gb: float = 10.0
    """The most that hidden states may take on disk, in gigabytes; more is refused before anything is computed."""
    folder: str = ""
    """Where hidden states are kept; the user's cache directory if left out."""
    validation: str = ""
    """A split of the test dataset to validate on, in place of training examples."""
    text_column: str = "text"
    """The column of texts in a file of one's own."""
    label_column: str = "label"
    """The column of labels in a file of one's own."""
    classes: tuple[str, ...] = ()
    """Names of the classes; they are found in the data."""


@dataclass(frozen=True)
class Recipe(Generic[ModelConfig]):
    """One experiment. ``model_name`` is a name of the registry of models and ``model`` its configuration."""

    name: Annotated[str, Fixed, Suppress]
    claim: Annotated[Claim, Fixed, Suppress]
    model_name: Annotated[str, Fixed, Suppress]
    model: ModelConfig
    routing: RoutingOptions = field(default_factory=RoutingOptions)
    data: Data = field(default_factory=Data)
    text: Text = field(default_factory=Text)
    transforms: Transforms = field(default_factory=Transforms)
    loss: Loss = field(default_factory=Loss)
    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: Schedule = field(default_factory=Schedule)
    epochs: float = 10.0
    """Passes over the training examples."""
    max_steps: int | None = None
    """Steps after which training ends all the same."""
    batch_size: int = 128
    """Examples of one step, over all processes and accumulations together."""
    grad_accum_steps: int = 1
    """Parts into which a step's batch is split to save memory; the step is the same."""
    clip: float | None = None
    """Largest norm of the gradient."""
    ema: float = 0.0
    """Decay of the moving average of the weights that is evaluated and kept; 0 for none."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Number type of the forward pass."""
    compile: bool = False
    """Compile the model first."""
    eval_every: int | None = None
    """Steps between evaluations on the validation examples; an epoch if left out."""
    stop_at: float | None = None
    """Percent on the validation examples at which training ends early."""
    weights: Literal["best", "last"] = "best"
    """Weights that are tested and kept: the best on the validation examples (without any, the last), or the last."""
    patience: int | None = None
    """Evaluations in a row without a higher validation accuracy, after which training ends early."""
    seed: int = 0
    """Where all that is random comes from."""
    cost: Annotated[str, Fixed, Suppress] = ""  # a rough idea: "3 min on 2 cores"

    @property
    def is_text(self) -> bool:
        """Whether the examples are texts; otherwise they are images."""
        return bool(self.text.encoder)

    def __post_init__(self) -> None:
        if not self.epochs > 0:
            raise ValueError(f"{self.epochs:g} epochs train nothing; give --epochs more than 0 (0.5 is half a pass)")
        if self.max_steps is not None and self.max_steps < 1:
            raise ValueError(f"{self.max_steps} steps train nothing; give --max-steps at least 1, or None for no limit")


AnyRecipe = Recipe[Any]
