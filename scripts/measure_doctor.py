"""What the checks of ``torchcaps doctor`` measure in healthy networks and in sick ones: the margins of their limits.

    python scripts/measure_doctor.py            # prints the table
    python scripts/measure_doctor.py --write    # and puts it into docs/doctor.md

Healthy networks are of every routing, at the start and after some training; sick ones have one fault each. All are
small, on digits of 14×14 pixels from the sample that ships with the package.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchcaps as tc
from torchcaps.data import load
from torchcaps.lab.diagnosis import CHECKS, Check, Diagnosis, diagnose
from torchcaps.lab.diagnosis.subject import Subject, as_batch, suited_loss
from torchcaps.losses import CrossEntropyLoss
from torchcaps.routing import ROUTINGS, Routing
from torchcaps.votes import tensor_votes

SIDE, EXAMPLES, TRAINED = 14, 200, 120
DOCS = Path(__file__).parent.parent / "docs" / "doctor.md"
BEGIN, END = "<!-- margins: written by scripts/measure_doctor.py -->\n", "<!-- end of margins -->\n"

Batch = tuple[Tensor, Tensor]


@dataclass
class Patient:
    """A network, a batch, and what else ``diagnose`` is told. Wrong data show without trials."""

    model: nn.Module
    batch: Batch
    options: dict[str, Any] = field(default_factory=dict)

    def diagnose(self) -> Diagnosis:
        return diagnose(self.model, self.batch, **self.options)


def digits(count: int = EXAMPLES, start: int = 0) -> Batch:
    """Images ``(count, 1, 14, 14)`` and labels."""
    found = load("mnist_sample", "train").batch(torch.arange(start, start + count))
    return F.interpolate(found.image, (SIDE, SIDE), mode="bilinear", antialias=True), found.label


def colored(count: int = EXAMPLES) -> Batch:
    """The same in three channels, each image in a color of its own."""
    images, labels = digits(count)
    return images * torch.rand(count, 3, 1, 1, generator=torch.Generator().manual_seed(0)).add(0.3), labels


def network(routing: str = "dynamic", **options: Any) -> nn.Module:
    """The network of the controlled comparison of routings, small."""
    torch.manual_seed(0)
    fields = {"image_size": SIDE, "widths": (8, 16), "caps": 2, "routing": routing}
    return tc.models.create("comparison", **(fields | options))


def capsnet(**options: Any) -> nn.Module:
    """A small CapsNet with a decoder."""
    torch.manual_seed(0)
    fields = {"image_size": SIDE, "kernel_size": 5, "stem_channels": 16, "primary_caps": 4, "decoder_widths": (32, 64)}
    return tc.models.create("sabour2017_mnist", **(fields | options))


class Own(nn.Module):
    """A module of one's own: features, primary capsules, class capsules, with a place for a fault after each."""

    def __init__(self, routing: str | Routing = "dynamic", **faults: Callable[[Any], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.features = nn.Sequential(nn.Conv2d(1, 16, 5, stride=2), nn.BatchNorm2d(16), nn.ReLU())
        self.primary = tc.SquashedPrimaryCapsules(16, 4, 8, kernel_size=3, stride=1)
        self.classes = tc.ClassCapsules(4, 8, 10, 8, routing)
        self.faults = faults

    def forward(self, images: Tensor) -> Tensor:
        features = self._pass("features", self.features(images))
        capsules = self.classes(self._pass("primary", self.primary(features)))
        logits = capsules.pose.sum(-1) if capsules.score is None else capsules.score
        return self._pass("logits", logits)

    def _pass(self, place: str, value: Any) -> Any:
        return self.faults[place](value) if place in self.faults else value


def scale_poses(by: float) -> Callable[[tc.Capsules], tc.Capsules]:
    return lambda capsules: tc.Capsules(by * capsules.pose, capsules.score)


class WrongSign(Routing):
    """Dynamic routing with the sign of the agreement mixed up, and nothing added up over the iterations."""

    title = "wrong sign"
    reads_scores = False

    def __init__(self, num_iters: int = 4) -> None:
        super().__init__()
        self.num_iters = num_iters

    def forward(self, votes, score=None, *, trace=None):
        votes, num_iters = tensor_votes(votes), self.num_iters

        def route(block):
            coupling = block.compete_evenly()
            pose = block.mix(coupling)
            for iteration in range(num_iters):
                pose = block.mix(coupling)
                if trace is not None:
                    trace.record(votes, coupling, pose, pose.square().sum(-1))
                if iteration < num_iters - 1:
                    coupling = block.compete(-5.0 * block.agreement(pose))
            return pose, pose.square().sum(-1)

        return tc.Capsules(*votes.run(route, whole=trace is not None))


def _biased(model: nn.Module, bias: float) -> nn.Module:
    """The network with some primary capsules that begin with a presence far from a half."""
    with torch.no_grad():
        model.get_parameter("primary.score.bias")[:1] = bias
    return model


def _favoring() -> nn.Module:
    """Dynamic routing whose learned prior gives everything to one parent."""
    routing = ROUTINGS["dynamic"](prior=True)
    model = Own(routing)
    with torch.no_grad():
        model.get_parameter("classes.routing.prior")[:, 0] = 40.0
    return model


def _with(index: int, value: float, batch: Batch) -> Batch:
    batch[0][index] = value
    return batch


def _few_images(batch: Batch) -> Batch:
    """Two images again and again, with all labels."""
    return batch[0][:2].repeat(len(batch[0]) // 2, 1, 1, 1), batch[1]


def _offset(logits: Tensor) -> Tensor:
    return logits + 1e3 * F.one_hot(torch.tensor(3), logits.shape[-1])


FAULTS: dict[str, Callable[[], Patient]] = {
    "not-finite": lambda: Patient(network(), _with(0, float("nan"), digits()), {"trials": False}),
    "input-range": lambda: Patient(network(), (255 * digits()[0], digits()[1]), {"trials": False}),
    "channels-last": lambda: Patient(network(), (digits()[0].permute(0, 2, 3, 1), digits()[1]), {"trials": False}),
    "scrambled-images": lambda: Patient(
        network(channels=3),
        (colored()[0].permute(0, 2, 3, 1).reshape(-1, 3, SIDE, SIDE), colored()[1]),
        {"trials": False},
    ),
    "constant-channels": lambda: Patient(
        network(channels=3), (F.pad(colored()[0][:, :2], (0, 0, 0, 0, 0, 1)), colored()[1]), {"trials": False}
    ),
    "identical-inputs": lambda: Patient(
        network(), (digits()[0][:1].expand(EXAMPLES, -1, -1, -1), digits()[1]), {"trials": False}
    ),
    "labels-out-of-range": lambda: Patient(network(), (digits()[0], digits()[1] + 1), {"trials": False}),
    "shuffled-labels": lambda: Patient(
        network(),
        (digits()[0], digits()[1][torch.randperm(EXAMPLES, generator=torch.Generator().manual_seed(0))]),
        {"trials": False},
    ),
    "dead-capsules": lambda: Patient(_biased(network(), -20.0), digits()),
    "always-active": lambda: Patient(_biased(network(), 20.0), digits()),
    "vanishing-poses": lambda: Patient(Own(primary=scale_poses(1e-5)), digits()),
    "saturated-poses": lambda: Patient(Own(primary=scale_poses(1e3)), digits()),
    "variance-floor": lambda: Patient(Own(ROUTINGS["em"](eps=1e6)), digits()),
    "even-couplings": lambda: Patient(Own(ROUTINGS["inverted_attention"](scale=0.0)), digits()),
    "collapsed-couplings": lambda: Patient(_favoring(), digits()),
    "oscillating-couplings": lambda: Patient(Own(WrongSign()), digits()),
    "gradient-grows-by-iteration": lambda: Patient(Own(ROUTINGS["dynamic"](4), primary=scale_poses(100.0)), digits()),
    "no-gradient": lambda: Patient(Own(features=Tensor.detach), digits()),
    "exploding-gradient": lambda: Patient(
        Own(logits=lambda logits: 1e4 * logits), digits(), {"loss": CrossEntropyLoss()}
    ),
    "reconstruction-drowns": lambda: Patient(capsnet(), digits(), {"reconstruction": 0.5}),
    "reconstruction-drowned": lambda: Patient(capsnet(), digits(), {"reconstruction": 5e-7}),
    "learning-rate-too-high": lambda: Patient(network(), digits(), {"lr": 3.0}),
    "learning-rate-too-low": lambda: Patient(network(), digits(), {"lr": 1e-7}),
    "batch-norm-of-one": lambda: Patient(network(), digits(1), {"trials": False}),
    "one-answer": lambda: Patient(Own(logits=_offset), digits()),
    "loss-at-chance": lambda: Patient(network(), digits(), {"step": 1000, "trials": False}),
    "chance": lambda: Patient(network(), digits(), {"step": 1000, "trials": False}),
    "cannot-learn-by-heart": lambda: Patient(network(), _few_images(digits(80))),
}


def train(model: nn.Module, steps: int = TRAINED, lr: float = 3e-3, reconstruction: float = 0.0) -> nn.Module:
    """Some training on other digits."""
    images, labels = digits(1000, start=EXAMPLES)
    loss, optimizer = suited_loss(model, labels), torch.optim.Adam(model.parameters(), lr)
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        rows = torch.randint(len(images), (32,), generator=generator)
        found = Subject(model.train(), as_batch(model, (images[rows], labels[rows])), loss, reconstruction).losses()
        optimizer.zero_grad()
        (found.classes + found.reconstruction).backward()
        optimizer.step()
    return model


def list_healthy(trained: bool) -> dict[str, Callable[[], Patient]]:
    """Healthy networks: every routing, a CapsNet with a decoder, a module of one's own."""

    def patient(make: Callable[[], nn.Module], reconstruction: float = 0.0) -> Callable[[], Patient]:
        options: dict[str, Any] = {"lr": 3e-3, "reconstruction": reconstruction}
        if not trained:
            return lambda: Patient(make(), digits(), options)
        return lambda: Patient(train(make(), reconstruction=reconstruction), digits(), options | {"step": TRAINED})

    found = {f"{ROUTINGS[name].title} routing": patient(lambda name=name: network(name)) for name in ROUTINGS}
    return found | {
        "CapsNet with decoder": patient(capsnet, 0.0005),
        "module of one's own": patient(Own),
    }


def measure(check: Check, found: Diagnosis) -> float | None:
    """The number of a check that is nearest to its limits, or furthest beyond them."""
    values = [value for _, value in check.values(found.measurements)]
    return max(values, key=lambda value: max(check.low - value, value - check.high), default=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"put the table into {DOCS.name}")
    parser.add_argument("--only", nargs="*", default=[], help="only these faults")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    healthy: dict[str, Diagnosis] = {}
    for trained in (False, True):
        for name, make in {} if arguments.only else list_healthy(trained).items():
            title = f"{name}, {'after' if trained else 'before'} training"
            healthy[title] = make().diagnose()
            print(f"{title}: {[finding.name for finding in healthy[title].findings]}", flush=True)
    rows = []
    for check in CHECKS:
        if arguments.only and check.name not in arguments.only:
            continue
        found = FAULTS[check.name]().diagnose()
        print(f"{check.name}: {[(each.name, each.where, round(each.value, 4)) for each in found.findings]}", flush=True)
        known = {title: measure(check, each) for title, each in healthy.items()}
        numbers = [value for value in known.values() if value is not None]
        rows.append((check, numbers, measure(check, found)))
    table = "\n".join(write_rows(rows)) + "\n"
    print(table)
    if arguments.write:
        before, _, rest = DOCS.read_text().partition(BEGIN)
        DOCS.write_text(before + BEGIN + table + END + rest.partition(END)[2])


def write_rows(rows: list[tuple[Check, list[float], float | None]]) -> list[str]:
    """The table of margins."""
    lines = ["| check | healthy | limit | with the fault |", "|---|---|---|---|"]
    for check, numbers, sick in rows:
        span = "not measured" if not numbers else f"{min(numbers):.3g} … {max(numbers):.3g}"
        limits = [f"≥ {check.low:g}"] * (check.low > float("-inf")) + [f"≤ {check.high:g}"] * (
            check.high < float("inf")
        )
        shown = "–" if sick is None else f"{sick:.3g}"
        lines.append(f"| [{check.name}](#{check.name}) | {span} | {', '.join(limits)} | {shown} |")
    return lines


if __name__ == "__main__":
    main()
