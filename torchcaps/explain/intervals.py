"""How sure a counted share is."""

from math import sqrt


def wilson_interval(correct: int, total: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's interval for a share, 95 % unless told.

    >>> low, high = wilson_interval(90, 100)
    >>> round(low, 3), round(high, 3)
    (0.826, 0.945)
    """
    if total <= 0:
        raise ValueError(f"a share of {total} examples has no interval; give at least one example")
    share, room = correct / total, z * z / total
    middle = (share + room / 2) / (1 + room)
    reach = z / (1 + room) * sqrt(share * (1 - share) / total + room / (4 * total))
    return max(0.0, middle - reach), min(1.0, middle + reach)
