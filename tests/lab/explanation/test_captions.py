"""What the sentences beside the figures say, on numbers that were planted both ways."""

import numpy as np
import pytest

from torchcaps.lab.explanation import captions
from torchcaps.lab.explanation.convergence import Changes, IterationAccuracy, VoteDistances
from torchcaps.lab.explanation.couplings import Couplings
from torchcaps.lab.explanation.perturbation import DimensionEffects, Perturbations
from torchcaps.lab.explanation.reconstruction import Reconstructions
from torchcaps.lab.explanation.robustness import Robustness
from torchcaps.lab.explanation.viewpoint import Plane

SMALL = (0.0, 1.0, 1.0, 0.0)  # an extent


def changes(*coupling: float) -> Changes:
    values = np.array([coupling], np.float32)
    return Changes(values, values, ("dynamic",), 4)


def test_changes_converge_or_grow() -> None:
    shrinking = captions.caption_changes(changes(0.1, 0.02, 0.001))
    assert "shrink from 0.1 at iteration 2 to 0.001 at iteration 4; the routing converges" in shrinking
    slow = captions.caption_changes(changes(0.1, 0.09, 0.05))
    assert "has not converged" in slow
    growing = captions.caption_changes(changes(0.001, 0.02, 0.1))
    assert "grow from 0.001 at iteration 2 to 0.1 at iteration 4; the routing does not converge" in growing
    assert "stay as large" in captions.caption_changes(changes(0.1, 0.3, 0.1))
    assert "no iteration changes" in captions.caption_changes(changes(0.0, 0.0))
    assert "converge" not in captions.caption_changes(changes(0.1))


def votes(*means: tuple[float, ...]) -> VoteDistances:
    """Means of the label's votes, a row for each example; those of the other class go the other way."""
    label = np.array(means, np.float32)
    mean = np.stack((label, label[:, ::-1]), -1)
    empty = np.zeros((*mean.shape, 3), np.float32)
    labels, chance = np.zeros(len(label), np.int64), np.full((len(label), 2), 0.5, np.float32)
    return VoteDistances(empty, np.arange(4.0), mean, mean, labels, chance, "em", ("seven", "one"))


def test_votes_draw_together_or_apart() -> None:
    assert "“seven”, the label, draw together: mean squared distance 0.4 in iteration 1 and 0.1 in iteration 3" in (
        captions.caption_vote_distances(votes((0.4, 0.2, 0.1)))
    )
    apart = captions.caption_vote_distances(votes((0.1, 0.2, 0.4)))
    assert "draw apart" in apart
    assert "together" not in apart
    assert "stay as far apart" in captions.caption_vote_distances(votes((0.1, 0.5, 0.1)))
    several = captions.caption_vote_distances(votes((0.4, 0.1), (0.1, 0.4), (0.1, 0.4)))
    assert "In all 3 examples that were measured: they draw together in 1, draw apart in 2." in several
    assert "one pass only" in captions.caption_vote_distances(votes((0.4,)))


def couplings(extent: tuple[float, float, float, float], last: float = 0.6) -> Couplings:
    share = np.full((1, 2, 2, 3, 2), 0.5, np.float32)
    share[0, 1, :, :, 0], share[0, 1, :, :, 1] = last, 1 - last
    share[0, 1, 1, 2, 0] = 0.9
    flow = np.array([[[[0.25, 0.25], [0.25, 0.25]], [[0.5 * last, 0.5 * (1 - last)]] * 2]], np.float32)
    return Couplings(
        share, np.ones((1, 2, 3), np.float32), extent, np.zeros((1, 20, 20, 1), np.float32),
        np.zeros((1, 1), np.int64), np.array([[0.8, 0.2]], np.float32), (flow,),
        np.array([[[1.0], [last]]], np.float32), (2,), ("dynamic",), ("cat", "dog"),
    )  # fmt: skip


def test_couplings_say_where_they_go_and_what_they_cover() -> None:
    said = captions.caption_overlays(couplings((5.5, 13.5, 14.5, 4.5)))
    assert "50.0 % in iteration 1 and 65.0 % in iteration 2 goes to the predicted class “cat”" in said
    assert "row 2, column 3 of the grid gives it most, 90.0 %" in said
    assert "The 2×3 grid of primary capsules covers the center of the image only" in said
    assert "columns 7 to 14 of 20, rows 6 to 15 of 20" in said
    assert "covers the whole image" in captions.caption_overlays(couplings((-0.5, 19.5, 19.5, -0.5)))
    assert "“cat” receives most: 50.0 % in iteration 1 and 60.0 %" in captions.caption_graph(couplings(SMALL))
    other = captions.caption_graph(couplings(SMALL, last=0.3))
    assert "“dog” receives most" in other
    assert "The predicted class “cat” receives 50.0 % in iteration 1 and 30.0 % in iteration 2" in other
    assert "unevenly" in captions.caption_entropy(couplings(SMALL, last=0.6))
    assert "nearly evenly" in captions.caption_entropy(couplings(SMALL, last=0.99))
    assert "mostly to one parent" in captions.caption_entropy(couplings(SMALL, last=0.1))


@pytest.mark.parametrize(("error", "told"), [(5.0, "20 % of a black"), (24.0, "hardly better"), (30.0, "worse than")])
def test_reconstructions_are_judged_against_a_black_image(error: float, told: str) -> None:
    image = np.ones((2, 5, 5, 1), np.float32)
    label = np.array([0, 1])
    record = Reconstructions(image, label, label, image, image, np.full(2, error, np.float32), ("a", "b"))
    assert told in captions.caption_reconstructions(record)


def test_iterations_that_matter_and_such_that_do_not() -> None:
    def said(*correct: int) -> str:
        steps = np.arange(1, len(correct) + 1)
        return captions.caption_iterations(
            IterationAccuracy(steps, np.array(correct), np.full(len(correct), 100), 2, "net")
        )

    assert "from 20.0 % (1 iteration) to 98.0 % (3 iterations) on 100 examples." in said(20, 90, 98)
    assert "With the 2 iterations of training it is 90.0 %" in said(20, 90, 98)
    assert "within the 95 % interval" in said(96, 97, 98)
    assert "98.0 % with every number" in said(98, 98, 98)


def test_effects_of_dimensions() -> None:
    correlation = np.array([[0.1, -0.9], [0.2, 0.1]], np.float32)
    record = DimensionEffects(correlation, 2 * correlation, (-0.25, 0.25), 3, ("width", "slant"), ("pixels", "columns"))
    said = captions.caption_effects(record)
    assert "The slant follows dimension 1 most closely: −1.80 columns" in said
    assert "1 of 2 dimensions move none" in said
    still = DimensionEffects(0.1 * correlation, correlation, (-1.0, 1.0), 3, ("width", "slant"), ("pixels", "columns"))
    assert "None of the 2 dimensions" in captions.caption_effects(still)
    decoded = np.zeros((1, 2, 3, 4, 4, 1), np.float32)
    plain = np.zeros((1, 4, 4, 1), np.float32)
    moved = Perturbations(
        plain, np.zeros(1, np.int64), np.zeros((1, 2)), np.array([-1.0, 0.0, 1.0]), plain, decoded, ("a",)
    )
    assert captions.caption_perturbations(moved) == "Moving a dimension does not change the image."
    decoded[0, 1, 2] = 0.5
    assert "Dimension 2 changes the image most, by 0.500" in captions.caption_perturbations(moved)


def test_losses_under_distortion() -> None:
    amounts = (np.array([0.0, 1.0]), np.array([-2.0, 0.0]))
    lost = Robustness("net", ("noise", "shear"), ("sd", "columns"), amounts, (np.array([90, 20]), np.array([80, 90])), 90, 100)  # noqa: E501  # fmt: skip
    said = captions.caption_robustness(lost)
    assert "The largest loss is under noise (to 20.0 % at 1 [sd]), the smallest under shear (to 80.0 % at −2" in said
    kept = Robustness("net", ("noise",), ("sd",), amounts[:1], (np.array([90, 95]),), 90, 100)
    assert "Nothing that was tried lowers that" in captions.caption_robustness(kept)


@pytest.mark.parametrize(("stress", "word"), [(0.05, "faithful"), (0.15, "fair"), (0.4, "poor")])
def test_planes_say_how_far_to_trust_them(stress: float, word: str) -> None:
    assert word in captions.caption_planes([Plane(np.zeros((2, 1, 2)), np.zeros(2), stress, "azimuth", "car")])
