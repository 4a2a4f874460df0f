"""What capsule networks die of, as data: each check names a number, the range in which it is healthy, and a remedy.

The ranges come from ``scripts/measure_doctor.py``, which trains healthy networks with every routing and sick ones with
every fault, and writes the margins into the documentation.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise

from torchcaps.lab.diagnosis.findings import CHANCE, FIRST_EPOCHS, KINDS, SETTLED, Check, Finding, Measurements, Place
from torchcaps.lab.diagnosis.measuring import LONG, SHORT

VARIED = 0.01  # part of the inputs by which examples differ at least


def _range(found: Measurements) -> Iterator[Place]:
    if found.inputs.is_image and not found.inputs.not_finite:
        yield "inputs", found.inputs.size


def _scrambled(found: Measurements) -> Iterator[Place]:
    if found.inputs.scrambled is not None:
        yield "inputs", found.inputs.scrambled


def _constant(found: Measurements) -> Iterator[Place]:
    if found.inputs.is_image and found.inputs.size > 0:
        numbers = ", ".join(map(str, found.inputs.constant_channels))
        yield f"channel {numbers}" if numbers else "channels", float(len(found.inputs.constant_channels))


def _neighbors(found: Measurements) -> Iterator[Place]:
    # Shuffled labels can be learned by heart too: other examples tell, or a batch that was one among many.
    known = found.validation or (found.outcome if found.step >= SETTLED else None)
    told_apart = found.inputs.varied >= VARIED and (known is None or not known.is_above_chance)
    if found.labels.neighbors is not None and told_apart:
        yield "labels", found.labels.neighbors


def _dead(found: Measurements) -> Iterator[Place]:
    for stage in found.stages[:-1]:
        if stage.highest_presence:
            dead = [number for number, most in enumerate(stage.highest_presence) if most < SHORT]
            yield _name_types(stage.name, dead), len(dead) / len(stage.highest_presence)
    if found.outcome is not None and found.outcome.answers and found.outcome.lead > 0.5:
        often = [number for number, count in enumerate(found.outcome.labels) if count >= 3]
        never = [number for number in often if not found.outcome.answers[number]]
        if often:
            yield _name_types("class capsules", never), len(never) / len(often)


def _always(found: Measurements) -> Iterator[Place]:
    for stage in found.stages[:-1]:
        if stage.lowest_presence:
            always = [number for number, least in enumerate(stage.lowest_presence) if least > LONG]
            yield _name_types(stage.name, always), len(always) / len(stage.lowest_presence)


def _name_types(stage: str, numbers: list[int], most: int = 6) -> str:
    some = ", ".join(map(str, numbers[:most])) + (", …" if len(numbers) > most else "")
    return f"{stage} {some}" if numbers else stage


def _one_answer(found: Measurements) -> Iterator[Place]:
    outcome = found.outcome
    if outcome is not None and outcome.answers and outcome.count > 4 and outcome.majority <= 0.5:
        most = max(outcome.answers)
        yield f"class capsule {outcome.answers.index(most)}", most / outcome.count


def _floors(found: Measurements) -> Iterator[Place]:
    return ((stage.name, stage.at_floor) for stage in found.stages if stage.at_floor is not None and found.settled)


def _movement(found: Measurements) -> Iterator[Place]:
    for layer in found.layers:
        # Where couplings are uneven from the start, iterations need not move them.
        if layer.change and layer.entropy[-1] > 0.99 and found.settled:
            yield layer.name, layer.moved


def _largest_mass(found: Measurements) -> Iterator[Place]:
    for layer in found.layers:
        if len(layer.mass) > 1:
            yield f"{layer.name}, parent {layer.mass.index(max(layer.mass))}", max(layer.mass)


def _growth(found: Measurements) -> Iterator[Place]:
    """From the second iteration on: with even couplings alone, some routings have hardly any gradient."""
    for layer in found.layers:
        grown = [after / before for before, after in pairwise(layer.gradients[1:]) if before > 1e-12]
        if grown:
            yield f"{layer.name}, iteration {grown.index(max(grown)) + 3}", max(grown)


def _shares(found: Measurements) -> Iterator[Place]:
    most = max((part.size for part in found.parts), default=0.0)
    for part in found.parts if found.settled else ():
        if most > 0:
            yield part.name, part.size / most
        elif found.losses is not None and found.losses.classes > 1e-3:
            yield part.name, 0.0


def _chance(found: Measurements) -> Iterator[Place]:
    known = found.validation or found.outcome
    if known is not None and _late(found) and known.majority < 1:
        where = f"{'validation accuracy' if found.validation else 'accuracy'} after {found.step:,} steps"
        yield where, known.balanced_lead if known.is_chance else max(known.balanced_lead, 2 * CHANCE)


def _reconstruction(found: Measurements) -> Iterator[Place]:
    if found.reconstruction is not None:
        yield "losses", found.reconstruction


def _late(found: Measurements) -> bool:
    return found.step >= SETTLED and (found.epochs is None or found.epochs >= FIRST_EPOCHS)


def _loss_share(found: Measurements) -> Iterator[Place]:
    if found.losses is not None and _late(found):
        where = "training loss" if found.logged_loss is not None else "loss of the batch"
        loss = found.losses.classes if found.logged_loss is None else found.logged_loss
        yield f"{where} after {found.step:,} steps", loss / max(found.losses.chance, 1e-30)


def _by_heart(found: Measurements) -> Iterator[Place]:
    if found.by_heart is not None and found.by_heart.majority < 1:
        yield f"{found.by_heart.count} examples", found.by_heart.lead


def _rate(above: bool) -> Callable[[Measurements], Iterator[Place]]:
    def values(found: Measurements) -> Iterator[Place]:
        if found.lr is None or found.rates is None or not found.rates.losses:
            return
        limit = found.rates.highest if above else found.rates.onset
        if limit is not None:
            yield f"learning rate {found.lr:.2g}, against {limit:.2g}", found.lr / limit

    return values


CHECKS: tuple[Check, ...] = (
    Check(
        "not-finite",
        "inputs contain numbers that are not finite",
        "share of them",
        "Look for divisions by zero and missing values where the data are prepared.",
        lambda found: [("inputs", found.inputs.not_finite)],
        high=0.0,
        kind="setup",
    ),
    Check(
        "input-range",
        "inputs are in the wrong range",
        "root mean square",
        "Scale images once to 0…1, or to mean 0 and deviation 1: bytes are divided by 255, floats are not.",
        _range,
        low=0.02,
        high=20.0,
        kind="setup",
    ),
    Check(
        "channels-last",
        "the channels of the images are on the last axis",
        "axes in the wrong place",
        "Give (batch, channel, row, column): images.permute(0, 3, 1, 2).",
        lambda found: [("inputs", float(found.inputs.channels_last))] if found.inputs.is_image else [],
        high=0.0,
        kind="setup",
    ),
    Check(
        "scrambled-images",
        "images are smoother if their numbers are read with the channels last: they were reshaped, not permuted",
        "roughness as it is / channels last",
        "Use permute(0, 3, 1, 2) where the data have view or reshape.",
        _scrambled,
        high=1.5,
        kind="setup",
    ),
    Check(
        "constant-channels",
        "a channel has the same value everywhere",
        "constant channels",
        "Leave the channel out, or look where it gets lost; a gray image needs one channel.",
        _constant,
        high=0.0,
        kind="setup",
    ),
    Check(
        "identical-inputs",
        "all inputs of the batch are the same",
        "difference between examples / size",
        "Look whether the loader returns the example that it is asked for.",
        lambda found: [("inputs", found.inputs.varied)],
        low=VARIED,
        kind="setup",
    ),
    Check(
        "labels-out-of-range",
        "labels are not class numbers of this network",
        "share of labels outside",
        "Number the classes from 0 to one less than the class capsules, or create the model with classes=….",
        lambda found: [("labels", found.labels.outside)],
        high=0.0,
        kind="setup",
    ),
    Check(
        "shuffled-labels",
        "labels have nothing to do with the inputs: nearest neighbors share them no more often than strangers",
        "standard deviations above chance",
        "Shuffle inputs and labels by the same order; look at some pairs (torchcaps data show DATA).",
        _neighbors,
        low=3.0,
        kind="setup",
    ),
    Check(
        "dead-capsules",
        "capsules are never active",
        "share of dead capsules",
        "Fewer capsules, a lower learning rate, or another start: a presence near 0 passes hardly any gradient on.",
        _dead,
        high=0.1,
    ),
    Check(
        "always-active",
        "capsules are active for every input, so their presence says nothing",
        "share of such capsules",
        "Scale the inputs and poses below down, or normalize them; a presence near 1 passes hardly any gradient on.",
        _always,
        high=0.1,
    ),
    Check(
        "vanishing-poses",
        "poses vanish: what is above gets nothing to route",
        "root mean square of a pose's length",
        "Larger initial vote weights, or inputs and features of size one; batch norm in the backbone helps.",
        lambda found: [(stage.name, stage.length) for stage in found.stages] if found.settled else [],
        low=1e-3,
    ),
    Check(
        "saturated-poses",
        "squashed poses have length one whatever the input",
        f"share of poses longer than {LONG}",
        "Smaller vote weights or inputs, fewer children for each parent: squash has no gradient at length one.",
        lambda found: [(stage.name, stage.long) for stage in found.stages if stage.squashed],
        high=0.25,
    ),
    Check(
        "variance-floor",
        "variances are at their floor: all votes for a parent are the same to the routing",
        "share of variances at eps",
        "Larger vote weights or poses, or a smaller eps of the routing.",
        _floors,
        high=0.95,
    ),
    Check(
        "even-couplings",
        "couplings stay even: routing changes nothing",
        "part of the couplings that iterations move",
        "Larger votes (weights, poses) so that agreement tells parents apart, or spare the iterations: num_iters=1.",
        _movement,
        low=1e-3,
    ),
    Check(
        "collapsed-couplings",
        "one parent gets all children, whatever the input",
        "its part of all couplings",
        "Fewer iterations, a lower learning rate, smaller vote weights; look at the biases and betas of this parent.",
        _largest_mass,
        high=0.95,
    ),
    Check(
        "oscillating-couplings",
        "couplings go back and forth between iterations",
        "part of the couplings that the last iteration takes back",
        "Fewer iterations, or smaller votes: an odd and an even number of iterations give different answers.",
        lambda found: [(layer.name, layer.swing) for layer in found.layers if layer.swing is not None],
        high=0.05,
    ),
    Check(
        "gradient-grows-by-iteration",
        "a further iteration multiplies the gradient",
        "gradient with it / without it",
        "Fewer iterations (--routing.num-iters 2), a lower learning rate with warm-up, or --clip 1.",
        _growth,
        high=6.0,
    ),
    Check(
        "no-gradient",
        "a part of the network gets no gradient",
        "gradient as a part of the largest",
        "Look for detach, no_grad, integer or rounded values, and saturation between this part and the loss.",
        _shares,
        low=1e-7,
    ),
    Check(
        "exploding-gradient",
        "gradients are very large",
        "root mean square",
        "Scale inputs and initial weights down, use --clip 1, fewer iterations, or a warm-up.",
        lambda found: [(part.name, part.size_as_given) for part in found.parts],
        high=100.0,
    ),
    Check(
        "reconstruction-drowns",
        "the reconstruction loss drowns the classification loss",
        "reconstruction loss of a constant image / classification loss of a constant answer",
        "Lower --loss.reconstruction until this is about 0.05 (the papers' 0.0005 is for images of 28×28).",
        _reconstruction,
        high=1.0,
        kind="setup",
    ),
    Check(
        "reconstruction-drowned",
        "the reconstruction loss is drowned by the classification loss: the decoder hardly teaches the capsules",
        "reconstruction loss of a constant image / classification loss of a constant answer",
        "Raise --loss.reconstruction until this is about 0.05, or spare the decoder: --model.no-decoder.",
        _reconstruction,
        low=1e-4,
        kind="setup",
    ),
    Check(
        "learning-rate-too-high",
        "the learning rate is above the one at which the loss begins to rise",
        "times as high",
        "Lower --optimizer.lr; a tenth of the rate at which the loss begins to rise is a good start.",
        _rate(above=True),
        high=3.0,
        kind="setup",
    ),
    Check(
        "learning-rate-too-low",
        "the learning rate is far below the one at which the loss begins to fall",
        "part of it",
        "Raise --optimizer.lr; a tenth of the rate at which the loss begins to rise is a good start.",
        _rate(above=False),
        low=0.02,
        kind="setup",
    ),
    Check(
        "batch-norm-of-one",
        "batch norm sees one example at a time: its statistics are those of this example",
        "examples of one forward pass",
        "Raise --batch-size or lower --grad-accum-steps, or build the network without batch norm.",
        lambda found: [("batch norm", float(found.batch_size))] if found.batch_norm else [],
        low=2.0,
        kind="setup",
    ),
    Check(
        "one-answer",
        "one class is predicted for every input",
        "its part of all answers",
        "Look at the other findings first; then at the class capsule's bias, and at how many examples each class has.",
        _one_answer,
        high=0.95,
        kind="answers",
    ),
    Check(
        "loss-at-chance",
        "the loss has not left that of a constant answer",
        "loss / loss of the best constant answer",
        "Another learning rate, a loss that suits the routing, fewer iterations; look whether labels belong to inputs.",
        _loss_share,
        high=0.98,
        kind="answers",
    ),
    Check(
        "chance",
        "the network is no better than a constant answer",
        "balanced accuracy above it",
        "Another learning rate, a loss that suits the routing, fewer iterations; look whether labels belong to inputs.",
        _chance,
        low=CHANCE,
        kind="answers",
    ),
    Check(
        "cannot-learn-by-heart",
        "the network cannot learn a few examples by heart",
        "share learned of what a constant answer leaves",
        "Something is broken, not just slow: look at gradients, at the loss (suited_losses), and for equal inputs with "
        "different labels.",
        _by_heart,
        low=0.5,
        kind="answers",
    ),
)


def find_all(measurements: Measurements) -> list[Finding]:
    """Every symptom, causes before consequences."""
    found = [finding for check in CHECKS for finding in check.find(measurements)]
    return sorted(found, key=lambda finding: KINDS.index(finding.check.kind))
