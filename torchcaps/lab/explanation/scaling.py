"""Multidimensional scaling: points in the plane whose distances are as close as possible to given ones."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Embedding(NamedTuple):
    """Points, and Kruskal's stress: the root of the squared errors of the distances by the squared distances; 0 where
    the distances are met exactly."""

    points: Float[np.ndarray, "n dimension"]
    stress: float


def pairwise_distances(points: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n n"]:
    """Euclidean distances between all rows."""
    squares = (points**2).sum(1)
    product = points @ points.T
    found = np.sqrt(np.maximum(squares[:, None] + squares[None] - 2 * product, 0.0))
    np.fill_diagonal(found, 0.0)
    return found


def stress(points: Float[np.ndarray, "n d"], distances: Float[np.ndarray, "n n"]) -> float:
    """Kruskal's stress of points for given distances."""
    total = float((distances**2).sum())
    error = float(((pairwise_distances(points) - distances) ** 2).sum())
    return float(np.sqrt(error / total)) if total > 0 else 0.0


def classical_scaling(distances: Float[np.ndarray, "n n"], dimensions: int = 2) -> Float[np.ndarray, "n dimension"]:
    """Torgerson's scaling: the leading eigenvectors of the doubly centered squared distances."""
    count = len(distances)
    centering = np.eye(count) - 1.0 / count
    values, vectors = np.linalg.eigh(-0.5 * centering @ distances**2 @ centering)
    leading = np.argsort(values)[::-1][:dimensions]
    points = vectors[:, leading] * np.sqrt(np.maximum(values[leading], 0.0))
    missing = dimensions - points.shape[1]
    return np.pad(points, ((0, 0), (0, missing))) if missing > 0 else points


def scale_to_plane(
    distances: Float[np.ndarray, "n n"], dimensions: int = 2, steps: int = 300, tolerance: float = 1e-9
) -> Embedding:
    """Classical scaling, improved by SMACOF (Guttman's transform) until the stress no longer falls."""
    distances = np.asarray(distances, dtype=np.float64)
    if distances.ndim != 2 or distances.shape[0] != distances.shape[1] or not np.allclose(distances, distances.T):
        raise ValueError(f"distances are a symmetric square; got an array of shape {distances.shape}")
    if len(distances) < 2:
        raise ValueError("scaling needs two points at least")
    points = classical_scaling(distances, dimensions)
    now = stress(points, distances)
    for _ in range(steps):
        found = pairwise_distances(points)
        ratio = np.divide(distances, found, out=np.zeros_like(distances), where=found > 1e-12)
        transform = -ratio
        np.fill_diagonal(transform, ratio.sum(1))
        moved = transform @ points / len(points)
        then = stress(moved, distances)
        if now - then < tolerance:
            break
        points, now = moved, then
    return Embedding(points, now)
