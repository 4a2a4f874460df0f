"""Text for terminals: names from strangers' files made harmless, and durations."""

from itertools import pairwise

UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def printable(text: object) -> str:
    """The text with everything that is not printable written as an escape; line breaks stay.

    >>> printable("cat\\x1b[2J"), printable("déjà vu")
    ('cat\\\\x1b[2J', 'déjà vu')
    """
    return "".join(letter if letter.isprintable() or letter == "\n" else ascii(letter)[1:-1] for letter in str(text))


def format_duration(seconds: float) -> str:
    """A time in the unit that suits it.

    >>> [format_duration(seconds) for seconds in (8.24, 59.9, 200.0, 7_260.0, 2e5)]
    ['8.2 s', '60 s', '3 min 20 s', '2 h 1 min', '2 d 7 h']
    """
    whole = round(seconds)
    if whole < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    for (unit, length), (below, part) in pairwise(UNITS):
        if whole >= length:
            rest = whole % length // part
            return f"{whole // length} {unit}" + (f" {rest} {below}" if rest else "")
    raise AssertionError("90 seconds are more than a minute")
