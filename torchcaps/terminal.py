"""Text of strangers (names of files, folders, labels) as something a terminal can show without obeying it."""


def printable(text: object) -> str:
    """The text with everything that is not printable written as an escape; line breaks stay.

    >>> printable("cat\\x1b[2J"), printable("déjà vu")
    ('cat\\\\x1b[2J', 'déjà vu')
    """
    return "".join(letter if letter.isprintable() or letter == "\n" else ascii(letter)[1:-1] for letter in str(text))
