"""What was tried on rendered toys, network by network, in the order of the trials."""

from dataclasses import dataclass

from torchcaps.lab.training.records import slug

ON_VALIDATION = ("--data.train", "toys_val", "--data.limit", "None", "--data.test-limit", "None")
"""All trials train on the same pictures, and are scored on all pictures of the instances kept apart."""


@dataclass(frozen=True)
class ToyTrial:
    """One setting of one network."""

    network: str
    recipe: str
    name: str
    options: tuple[str, ...]
    seed: int = 0

    @property
    def folder(self) -> str:
        """The name of its run folder."""
        return f"{slug(self.network)}-{slug(self.name)}-seed{self.seed}"


def list_trials(network: str, recipe: str, tried: dict[str, str]) -> tuple[ToyTrial, ...]:
    """The trials of one network; each is named, with its options as one would type them."""
    return tuple(ToyTrial(network, recipe, name, tuple(options.split())) for name, options in tried.items())


ENTROPY = "--loss.kind cross_entropy --loss.margin-steps None"
BRIEF = f"--max-steps 200 {ENTROPY}"  # to see what learns at all
NORMED = "--model.pose-norm type --model.class-weight-std 0.5"
SMALLER = f"{BRIEF} {NORMED} --transforms.resize 36"
WHOLE = "--transforms.resize 48 --transforms.pad 4 --transforms.crop 48"


def scale(temperature: float, share: float) -> str:
    """The inverse temperature, and the class layer's share of it."""
    return f"--model.inverse-temperature {temperature:g} --model.class-temperature-share {share:g}"


DEEP = f"{ENTROPY} {NORMED} --model.stem-strides 2 2 1 1 --model.caps 8 16 16 {scale(0.3, 1.5)}"
EM = list_trials(
    "EM",
    "hinton2018/smallnorb",
    {
        "regime of before": "--epochs 2",
        "cross-entropy": f"--epochs 2 {ENTROPY}",
        "stem of 2": "--epochs 2 --model.stem-strides 2 2",
        "stem of 2, pose norm": "--epochs 2 --model.stem-strides 2 2 --model.pose-norm type",
        "brief": BRIEF,
        "brief, pose norm, class weights 0.5": f"{BRIEF} {NORMED}",
        "brief, pose norm, class weights 0.5, λ 0.5": f"{BRIEF} {NORMED} {scale(0.5, 0.2)}",
        "brief, pose norm, class weights 0.5, resize 36": SMALLER,
        "brief, pose norm, class weights 0.5, resize 36, eps 1, λ 2": f"{SMALLER} --model.eps 1 {scale(2, 0.2)}",
        "brief, pose norm, class weights 0.5, resize 36, 1 iteration": f"{SMALLER} --model.num-iters 1",
        "whole images, stem of 2": f"--max-steps 600 {ENTROPY} {NORMED} {WHOLE} --model.stem-strides 2 2 "
        f"{scale(0.2, 0.5)}",
        "stem of 4": f"--epochs 2 {DEEP} --optimizer.lr 3e-3",
        "stem of 4, batch of 16": f"--epochs 2 {DEEP} --optimizer.lr 3e-3 --batch-size 16",
        "stem of 4, lr 0.001": f"--epochs 2 {DEEP} --optimizer.lr 1e-3",
    },
)

NORM = "--model.norm"
CNN = list_trials(
    "CNN beside EM",
    "hinton2018/smallnorb-cnn",
    {
        "regime of before": "--epochs 2",
        "brief": "--max-steps 200",
        "brief, batch norm": f"--max-steps 200 {NORM}",
        "brief, lr 0.003": "--max-steps 200 --optimizer.lr 3e-3",
        "brief, lr 0.0003": "--max-steps 200 --optimizer.lr 3e-4",
        "brief, batch norm, lr 0.003": f"--max-steps 200 {NORM} --optimizer.lr 3e-3",
        "brief, resize 36": "--max-steps 200 --transforms.resize 36",
        "400 steps, batch norm": f"--max-steps 400 {NORM}",
        "400 steps, batch norm, resize 36": f"--max-steps 400 {NORM} --transforms.resize 36",
        "400 steps, batch norm, hidden 512": f"--max-steps 400 {NORM} --model.hidden 512",
        "400 steps, batch norm, lr 0.003": f"--max-steps 400 {NORM} --optimizer.lr 3e-3",
        "400 steps, batch norm, weight decay": f"--max-steps 400 {NORM} --optimizer.weight-decay 1e-4",
        "batch norm": f"--epochs 2 {NORM}",
        "batch norm, batch of 16": f"--epochs 2 {NORM} --batch-size 16",
    },
)

# The same changes for both, listed before the first of them was trained.
CHANGES = {
    "as it was": "",
    "lr 0.001": "--optimizer.lr 1e-3",
    "lr 0.01": "--optimizer.lr 1e-2",
    "mixup": "--transforms.mixup 0.2",
    "momentum of the paper": "--optimizer.momentum 0.999 --schedule.momentum-low 0.8991",
    "Adam": "--optimizer.kind adam",
    "batch of 40": "--batch-size 40",
    "weight decay": "--optimizer.weight-decay 1e-4",
}
HALF = {name: f"--max-steps 1500 {change}" for name, change in CHANGES.items()}  # half as long as the training to plan
HEINSEN = list_trials("Heinsen", "heinsen2019/smallnorb", HALF)
HEINSEN_CNN = list_trials("CNN beside Heinsen", "heinsen2019/smallnorb-cnn", HALF)

TRIALS = EM + CNN + HEINSEN + HEINSEN_CNN

LENGTHS = ("--epochs", "--max-steps")


def settings(network: str, name: str) -> tuple[str, ...]:
    """The options of a trial but for its length, for the training that is planned with them."""
    trial = next(trial for trial in TRIALS if (trial.network, trial.name) == (network, name))
    pairs = zip(trial.options, ("", *trial.options), strict=False)
    return tuple(option for option, before in pairs if option not in LENGTHS and before not in LENGTHS)
