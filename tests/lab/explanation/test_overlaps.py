import dataclasses

import numpy as np
import pytest
import torch

from tests.lab.explanation.tiny import WITH_DECODER, small
from torchcaps.lab.explanation.overlaps import (
    Overlaps,
    draw_overlaps,
    draw_segmentation,
    label_pairs,
    segment,
    separate,
    two_colors,
)

PAIRS = torch.tensor([[0, 1], [3, 2], [2, 0]])


@pytest.mark.parametrize("name", WITH_DECODER)
def test_objects_are_decoded_one_by_one(name: str) -> None:
    net, images = small(name)
    parts = torch.rand(3, 2, *images.shape[2:])
    record = separate(net, images, PAIRS, parts=parts)
    decoded = net(images, decode=PAIRS).reconstruction
    assert decoded is not None
    np.testing.assert_allclose(record.from_label, decoded.mean(2).detach().numpy(), atol=1e-6)
    for n in range(3):  # of four classes, one is left that is neither there nor predicted, if they overlap
        assert record.absent[n, 0] == record.label[n, 0]
        assert record.absent[n, 1] not in record.label[n]
    draw_overlaps(record, "title")
    segmented = segment(record)
    assert ((segmented.accuracy >= 0) & (segmented.accuracy <= 1)).all()
    draw_segmentation(record, segmented)


def test_right_predictions_keep_the_place_of_their_label() -> None:
    net, images = small("sabour2017_mnist")
    record = separate(net, images, PAIRS)
    for label, predicted in zip(record.label, record.predicted, strict=True):
        assert predicted[0] != label[1] or predicted[1] == label[0]
        for k in set(label) & set(predicted):
            assert list(label).index(k) == list(predicted).index(k)


def _record(decoded: np.ndarray, parts: np.ndarray) -> Overlaps:
    image = np.clip(parts.sum(1), 0, 1)[..., None].astype(np.float32)
    pairs = np.array([[0, 1]])
    return Overlaps(image, pairs, pairs, pairs, decoded, decoded, decoded, parts, ("a", "b"))


def test_a_perfect_drawing_is_a_perfect_segmentation() -> None:
    parts = np.zeros((1, 2, 6, 6), np.float32)
    parts[0, 0, 1:4, 1:4] = 1.0
    parts[0, 1, 3:6, 3:6] = 1.0
    segmented = segment(_record(parts, parts))
    assert segmented.accuracy.tolist() == [1.0]
    assert segmented.overlap.tolist() == [[1.0, 1.0]]
    assert segmented.assigned[0, 3, 3] == 3  # both
    swapped = segment(_record(parts[:, ::-1], parts))
    assert swapped.accuracy[0] == pytest.approx(1 / 17)  # only what belongs to both is right
    with pytest.raises(ValueError, match="parts="):
        segment(dataclasses.replace(_record(parts, parts), parts=None))


def test_two_colors_add_up() -> None:
    decoded = np.zeros((2, 1, 3), np.float32)
    decoded[0, 0, 0] = decoded[1, 0, 1] = decoded[:, 0, 2] = 1.0
    colors = two_colors(decoded)[0]
    assert colors[0].argmin() == 2  # orange has no blue
    assert colors[1].argmax() == 2
    assert colors[2].min() > 0.9


def test_pairs_come_from_rows_as_well() -> None:
    rows = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    assert label_pairs(rows).tolist() == [[0, 2], [1, 2]]
    with pytest.raises(ValueError, match="two classes"):
        label_pairs(torch.eye(3))
    with pytest.raises(ValueError, match="two class numbers"):
        label_pairs(torch.zeros(3, 3, dtype=torch.long))
