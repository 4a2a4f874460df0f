"""All routings on an example that a person can follow: parts that vote for wholes.

``python -m torchcaps.lab.explanation.worked_example`` prints the story, and writes a picture and all numbers.
"""

import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path

import tyro
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from torchcaps.files import write_json
from torchcaps.lab.explanation.parts_and_wholes import (
    SCENES,
    WHOLES,
    Part,
    Placement,
    RoutingOutcome,
    Told,
    as_numbers,
    few_at_a_time,
    part_names,
    rank_wholes,
    tell,
)

ABREAST = 5  # routings in a row of a table
PICTURE, NUMBERS = "worked-example.png", "worked-example.json"


def print_story(console: Console, told: list[Told]) -> None:
    wholes = list(WHOLES)
    console.print(
        f"\nParts vote for wholes. A part knows where it sits in a {', a '.join(wholes[:-1])} or a {wholes[-1]}, "
        "so it can say where each of them would be if it were a part of it. Votes that agree are no accident: routing "
        "finds them, and couples each part to the whole whose other parts tell the same story.",
    )
    for number, each in enumerate(told, 1):
        console.print()
        console.rule(f"Scene {number}: {each.scene.title}", align="left", characters="─")
        _print(console, _vote_table(each), "Where each part is, and where it says that each whole is: x, y, angle.")
        caption = (
            "How the parts are coupled: per cent after each iteration, to the whole that they end up with (its first "
            "letter)."
        )
        for some in few_at_a_time(each.outcomes, ABREAST):
            _print(console, _coupling_table(each, some), caption)
            caption = ""
        caption = "What each routing says about each whole at the end; * is what it puts first."
        for some in few_at_a_time(each.outcomes, ABREAST):
            _print(console, _verdict_table(each, some), caption)
            caption = ""
    console.print(
        "\nWhere couplings are even nothing is routed, and what agrees shows in the score alone. Inverted attention "
        "has no score: shown is the attention that each whole has won; in a network a classifier reads the poses. A "
        "stray part has to go somewhere, for couplings sum to one: it goes where it is least wrong.",
    )


def _print(console: Console, table: Table, caption: str) -> None:
    console.print()
    if caption:
        console.print(caption, style="italic")
    console.print(Padding(table, (0, 0, 0, 1)))


def _vote_table(told: Told) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("part")
    table.add_column("is at", justify="right")
    for whole in WHOLES:
        table.add_column(f"{whole} at", justify="right")
    for name, part, votes in zip(part_names(told.scene), told.scene.parts, told.votes, strict=True):
        cells = [
            Text(_short(vote), style="bold" if whole == part.whole else "")
            for whole, vote in zip(WHOLES, votes, strict=True)
        ]
        table.add_row(name, _short(part.placement), *cells)
    return table


def _coupling_table(told: Told, outcomes: Sequence[RoutingOutcome]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("part")
    table.add_column("of")
    for outcome in outcomes:
        table.add_column(outcome.routing, justify="right")
    for row, (name, part) in enumerate(zip(part_names(told.scene), told.scene.parts, strict=True)):
        table.add_row(name, part.whole or "-", *(_course(outcome, row, part) for outcome in outcomes))
    return table


def _course(outcome: RoutingOutcome, row: int, part: Part) -> Text:
    shares = [iteration[row] for iteration in outcome.couplings]
    if not outcome.couples:
        return Text("even")
    end = max(range(len(WHOLES)), key=lambda whole: shares[-1][whole])
    course = " ".join(f"{100 * share[end]:.0f}" for share in shares)
    whole = list(WHOLES)[end]
    return Text(f"{course} {whole[0].upper()}", style="bold" if whole == part.whole else "")


def _verdict_table(told: Told, outcomes: Sequence[RoutingOutcome]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("whole")
    for outcome in outcomes:
        table.add_column(f"{outcome.routing}\n{outcome.measure}", justify="right")
    ahead = [rank_wholes(outcome, len(told.scene.wholes)) for outcome in outcomes]
    for whole in WHOLES:
        cells = [
            Text(f"{'* ' if whole in first else ''}{outcome.says[whole]:.2f}", style="bold" if whole in first else "")
            for outcome, first in zip(outcomes, ahead, strict=True)
        ]
        table.add_row(whole, *cells)
    return table


def _short(place: Placement) -> str:
    x, y, angle = (round(number, digits) + 0.0 for number, digits in ((place.x, 1), (place.y, 1), (place.angle, 0)))
    return f"{x:.1f},{y:.1f},{angle:.0f}°"


def main(out: Path = Path("out")) -> None:
    """Show all routings on parts that vote for wholes.

    Args:
        out: Directory for the picture and the numbers.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a log that cannot hold ° or ─ is no reason to fail
    console = Console(markup=False, highlight=False)
    told = [tell(scene) for scene in SCENES]
    print_story(console, told)
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / NUMBERS, as_numbers(told), indent=1)
        written = [out / NUMBERS]
        try:
            from torchcaps.lab.explanation.worked_example_figure import draw
        except ModuleNotFoundError as error:
            console.print(f"\nNo picture: {error.name} is missing; pip install 'torchcaps[lab]' brings it.")
        else:
            draw(told, out / PICTURE)
            written.insert(0, out / PICTURE)
    except OSError as error:
        sys.exit(f"error: cannot write to {out}: {error.strerror or error}")
    console.print("\nWritten: " + ", ".join(str(path) for path in written), soft_wrap=True)


if __name__ == "__main__":
    tyro.cli(main, prog="python -m torchcaps.lab.explanation.worked_example")
