import numpy as np
import pytest
import torch

from tests.lab.explanation.tiny import CAPSULES, small
from torchcaps.data import ArrayDataset
from torchcaps.lab.explanation.robustness import novel_viewpoints
from torchcaps.lab.explanation.viewpoint import (
    PoseTrajectories,
    draw_changes_by_view,
    draw_plane,
    find_views,
    in_plane,
    measure_trajectories,
    pairwise_distances,
    scale_to_plane,
    some_planes,
)


def test_what_lies_in_a_plane_has_no_stress() -> None:
    points = np.random.default_rng(0).normal(size=(12, 2))
    hidden = np.linalg.qr(np.random.default_rng(1).normal(size=(5, 5)))[0][:2]
    embedded = scale_to_plane(pairwise_distances(points @ hidden))
    assert embedded.stress < 1e-6
    np.testing.assert_allclose(pairwise_distances(embedded.points), pairwise_distances(points), atol=1e-5)


def test_stress_is_reported_where_the_plane_is_too_small() -> None:
    distances = 1.0 - np.eye(6)  # all equally far from each other
    embedded = scale_to_plane(distances)
    error = ((pairwise_distances(embedded.points) - distances) ** 2).sum() / (distances**2).sum()
    assert embedded.stress == pytest.approx(np.sqrt(error))
    assert 0.1 < embedded.stress < 0.5
    with pytest.raises(ValueError, match="symmetric"):
        scale_to_plane(np.arange(9.0).reshape(3, 3))


def _turned(images: torch.Tensor, objects: int = 2, azimuths: int = 3, elevations: int = 2) -> ArrayDataset:
    """A dataset with smallNORB's metadata: each object from every side, in a shuffled order."""
    grid = torch.cartesian_prod(torch.arange(objects), torch.arange(azimuths), torch.arange(elevations))
    grid = grid[torch.randperm(len(grid), generator=torch.Generator().manual_seed(0))]
    picture = images[torch.arange(len(grid)) % len(images)]
    metadata = {"instance": grid[:, 0] + 5, "azimuth": 2 * grid[:, 1], "elevation": grid[:, 2]}
    return ArrayDataset("turned", "test", tuple("abcd"), picture, grid[:, 0] % 4, metadata)


def test_views_differ_in_one_angle_alone() -> None:
    dataset = _turned(torch.rand(3, 1, 4, 4))
    views = find_views(dataset, "azimuth")
    assert views.indices.shape == (2, 3)
    assert views.degrees.tolist() == [0.0, 20.0, 40.0]
    for row, name in zip(views.indices, views.names, strict=True):
        batch = dataset.batch(torch.from_numpy(row))
        assert batch.metadata["azimuth"].tolist() == [0, 2, 4]
        assert len(batch.metadata["elevation"].unique()) == len(batch.metadata["instance"].unique()) == 1
        assert name.endswith(str(int(batch.metadata["instance"][0])))
    assert find_views(dataset, "elevation").degrees.tolist() == [30.0, 35.0]


def test_data_without_viewpoints_say_so() -> None:
    plain = ArrayDataset("plain", "test", ("a",), torch.rand(3, 1, 4, 4), torch.zeros(3, dtype=torch.long))
    with pytest.raises(ValueError, match="says nothing about the azimuth"):
        find_views(plain, "azimuth")


@pytest.mark.parametrize("name", CAPSULES)
def test_trajectories_of_every_network(name: str) -> None:
    net, images = small(name)
    dataset = _turned(images)
    record = measure_trajectories(net, dataset, "azimuth")
    rows = record.pose.shape[2]
    assert rows * record.pose.shape[3] == net.class_pose
    views = find_views(dataset, "azimuth")
    capsules = net(dataset.batch(torch.from_numpy(views.indices[1])).image).capsules
    assert capsules is not None
    expected = capsules.pose[:, record.chosen[1]].detach().numpy()
    np.testing.assert_allclose(record.pose[1].reshape(3, -1), expected, atol=1e-5)
    plane = in_plane(record)
    assert plane.points.shape == (3, rows, 2)
    assert plane.stress >= 0
    draw_plane([plane])
    draw_changes_by_view(record)


def test_planes_are_of_objects_evenly_among_all() -> None:
    pose = np.random.default_rng(0).normal(size=(7, 3, 2, 4))
    names = tuple("abcdefg")
    record = PoseTrajectories(pose, np.arange(3.0), np.zeros(7, int), "azimuth", names, ("one",))
    assert [plane.name for plane in some_planes(record)] == ["a", "c", "e"]
    assert [plane.name for plane in some_planes(record, most=9)] == list(names)


def test_one_object_that_leaves_does_not_press_the_others_flat() -> None:
    pose = np.random.default_rng(0).normal(size=(20, 30, 1, 4)) + 5.0
    record = PoseTrajectories(
        pose, np.arange(30.0), np.zeros(20, int), "azimuth", tuple("abcdefghijklmnopqrst"), ("one",)
    )
    calm = draw_changes_by_view(record).axes[0].get_ylim()[1]
    pose[0, 7] *= 1000.0
    figure = draw_changes_by_view(record)
    assert figure.axes[0].get_ylim()[1] < 2 * calm
    assert "go on above it" in figure.legends[0].get_title().get_text()


def test_changes_are_against_the_first_view() -> None:
    pose = np.array([[[[3.0, 4.0]], [[6.0, 8.0]], [[-4.0, 3.0]]]])
    record = PoseTrajectories(pose, np.arange(3.0), np.zeros(1, int), "azimuth", ("one",), ("a",))
    changes = record.changes()
    np.testing.assert_allclose(changes["distance"][0, :, 0], [0.0, 1.0, np.sqrt(2)])
    np.testing.assert_allclose(changes["norm ratio"][0, :, 0], [1.0, 2.0, 1.0])
    np.testing.assert_allclose(changes["cosine"][0, :, 0], [1.0, 1.0, 0.0], atol=1e-12)


def test_novel_viewpoints_share_nothing_with_familiar_ones() -> None:
    dataset = _turned(torch.rand(3, 1, 4, 4))
    familiar, novel = novel_viewpoints(dataset, "azimuth", [0, 2])
    assert len(familiar) + len(novel) == len(dataset)
    assert set(familiar.batch(torch.arange(len(familiar))).metadata["azimuth"].tolist()) == {0, 2}
    assert set(novel.batch(torch.arange(len(novel))).metadata["azimuth"].tolist()) == {4}
    with pytest.raises(ValueError, match="leaves one side empty"):
        novel_viewpoints(dataset, "azimuth", [1])
    with pytest.raises(ValueError, match="says nothing about 'lighting'"):
        novel_viewpoints(dataset, "lighting", [1])
