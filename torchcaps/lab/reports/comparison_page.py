"""Runs side by side in one page that needs no other file."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from typing import Any, NamedTuple

import numpy as np

from torchcaps.lab.evaluation.intervals import adjust_for_many, compare_pairs, compare_seeds
from torchcaps.lab.explanation.comparison import Standing, draw_accuracies, draw_calibration
from torchcaps.lab.explanation.figures import render
from torchcaps.lab.explanation.robustness import Robustness, clean_note, draw_robustness
from torchcaps.lab.recipes import to_json
from torchcaps.lab.reports.charts import Curve, line_chart
from torchcaps.lab.reports.page import absent, contents, figure, page, section, svg_source, table
from torchcaps.lab.training import Run

HEADER = ("run", "accuracy", "95 % interval", "examples", "parameters", "MACs", "ms an image", "memory", "calibration")
MOST_PAIRS = 15  # of more, each run is compared with the best one alone
REAL = 0.05  # p below which a difference counts as one


class Compared(NamedTuple):
    """One of the networks: its figures, its robustness if it takes images, its run if it comes from one."""

    standing: Standing
    robust: Robustness | None = None
    run: Run | None = None


def row_of(standing: Standing) -> list[str]:
    low, high = standing.interval
    return [
        standing.name,
        f"{100 * standing.accuracy:.2f} %",
        f"{100 * low:.2f} to {100 * high:.2f} %",
        f"{standing.total:,}",
        f"{standing.parameters:,}",
        f"{standing.macs / 1e6:,.1f} M",
        f"{standing.milliseconds:.2f}",
        f"{standing.mebibytes:.1f} MiB",
        f"{100 * standing.calibration_error:.2f} points",
    ]


def comparison_page(compared: Sequence[Compared]) -> str:
    """The page, with its figures inside."""
    standings = [each.standing for each in compared]
    sections = {
        "All figures": _figures(standings),
        "Differences": paired_section(compared),
        "Recipes": recipes_section(compared),
        "Learning curves": curves_section(compared),
        "Accuracy": section(
            "Accuracy", "With its 95 % interval (Wilson).", _inside(draw_accuracies(standings), "accuracies")
        ),
        "Robustness": _robustness(compared),
        "Calibration": section(
            "Calibration",
            "How often a network is correct that is so sure; the error is the mean distance from the line.",
            _inside(draw_calibration(standings), "calibration"),
        ),
    }
    count = len(standings)
    head = f"<header><h1>{count} run{'s' if count > 1 else ''} compared</h1></header>"
    return page("Runs compared", [head, contents(sections), *sections.values()])


def _figures(standings: Sequence[Standing]) -> str:
    sets = sorted({each.data for each in standings})
    about = f"On {', '.join(sets)}." + ("" if len(sets) == 1 else " The runs have different data: compare with care.")
    first = standings[0]
    measured = (
        f"Time and memory: this machine, {first.threads} thread{'s' if first.threads > 1 else ''}, "
        f"{first.batch} images at a time; memory is what tensors hold at most, weights not counted. "
        "Multiply-adds are those of the papers' formulas."
    )
    return section("All figures", about, table(HEADER, map(row_of, standings), range(1, len(HEADER))), _small(measured))


def _are_paired(first: Standing, second: Standing) -> bool:
    return first.data == second.data and np.array_equal(first.label, second.label)


def paired_section(compared: Sequence[Compared]) -> str:
    """Which differences are more than chance: example by example, and seed by seed where there are several."""
    title = "Differences"
    standings = sorted((each.standing for each in compared), key=lambda each: -each.accuracy)
    pairs = [pair for pair in itertools.combinations(standings, 2) if _are_paired(*pair)]
    if len(pairs) > MOST_PAIRS:
        pairs = [pair for pair in pairs if pair[0] is standings[0]]
    if not pairs:
        why = (
            "a paired test needs two runs" if len(standings) < 2 else "the runs were not measured on the same examples"
        )
        return absent(title, f"{why}.")
    found = [compare_pairs(first.right, second.right) for first, second in pairs]
    adjusted = adjust_for_many([each.p for each in found])
    rows = [
        (
            first.name, second.name, f"{100 * (first.accuracy - second.accuracy):+.2f} points".replace("-", "−"),
            f"{each.only_first:,}", f"{each.only_second:,}", _p(each.p), _p(holm),
        )
        for (first, second), each, holm in zip(pairs, found, adjusted, strict=True)
    ]  # fmt: skip
    header = ("first", "second", "difference", "only first correct", "only second correct", "p", "p (Holm)")
    real = sum(holm < REAL for holm in adjusted)
    said = f"{real} of {len(pairs)} differences are" if len(pairs) > 1 else "The difference is" + " not" * (not real)
    about = (
        f"{said} larger than chance would make {'them' if len(pairs) > 1 else 'it'} on these examples (McNemar's exact "
        f"test, p below {REAL}{', corrected for several tests by Holm' if len(pairs) > 1 else ''}). It is about these "
        "trained networks; whether another training would give the same, only several seeds tell."
    )
    parts = [table(header, rows, range(2, len(header)))]
    by_seed = _by_seed(compared)
    if by_seed:
        header = ("first", "second", "seeds", "mean difference", "95 % interval (paired by seed)")
        parts += ["<h3>Over seeds</h3>", table(header, by_seed, range(2, len(header)))]
    return section(title, about, *parts)


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else f"{value:.1e}".replace("-", "−")


def _by_seed(compared: Sequence[Compared]) -> list[tuple[str, ...]]:
    """Recipes that were run with several seeds each, two by two."""
    groups: dict[str, dict[int, Standing]] = {}
    for each in compared:
        if each.run is not None:
            key = json.dumps(to_json(replace(each.run.recipe, seed=0)), sort_keys=True)
            groups.setdefault(key, {})[each.run.recipe.seed] = each.standing
    rows = []
    for first, second in itertools.combinations(groups.values(), 2):
        accuracy = [{seed: standing.accuracy for seed, standing in group.items()} for group in (first, second)]
        found = compare_seeds(*accuracy)
        if found is not None:
            low, high = found.interval
            names = [" + ".join(standing.name for _, standing in sorted(group.items())) for group in (first, second)]
            ends = f"{100 * low:+.2f} to {100 * high:+.2f} points"
            cells = (*names, str(found.seeds), f"{100 * found.difference:+.2f} points", ends)
            rows.append(tuple(cell.replace("-", "−") if place > 2 else cell for place, cell in enumerate(cells)))
    return rows


def recipes_section(compared: Sequence[Compared]) -> str:
    """The fields of the recipes that are not the same in all runs."""
    title = "Recipes"
    runs = [(each.standing.name, each.run) for each in compared if each.run is not None]
    if len(runs) < 2:
        return absent(title, "differences need two run folders; a model file has no recipe.")
    fields = [_flat(to_json(run.recipe)) | {"scale": run.scale} for _, run in runs]
    names = dict.fromkeys(itertools.chain.from_iterable(fields))
    differing = [name for name in names if len({json.dumps(of_run.get(name)) for of_run in fields}) > 1]
    if not differing:
        return section(title, "The recipes are the same in every field.")
    rows = [(name, *(_show(of_run.get(name)) for of_run in fields)) for name in differing]
    same = len(names) - len(differing)
    return section(title, f"What differs; {same} other fields are the same.", table(("field", *dict(runs)), rows))


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested fields by dotted names."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        inner = _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
        found |= inner
    return found


def _show(value: Any) -> str:
    return "–" if value is None or value == "" else value if isinstance(value, str) else json.dumps(value)


def curves_section(compared: Sequence[Compared]) -> str:
    """Learning curves of all runs over each other."""
    title = "Learning curves"
    lines = {each.standing.name: each.run.metrics() for each in compared if each.run is not None}

    def curves(kind: str, of: str) -> list[Curve]:
        found = [
            Curve(name, [(float(line["step"]), float(line[of])) for line in written if _has(line, kind, of)])
            for name, written in lines.items()
        ]
        return [curve for curve in found if curve.points]

    kind = "val" if curves("val", "accuracy") else "test"
    words = "Validation" if kind == "val" else "Test"
    charts = [(f"{words} accuracy", curves(kind, "accuracy"), True), (f"{words} loss", curves(kind, "loss"), False)]
    charts.append(("Training loss", curves("train", "loss"), False))
    drawn = [line_chart(name, "step", found, share=share) for name, found, share in charts if found]
    if not drawn:
        return absent(title, "no run has written metrics.")
    about = "Training losses are of single batches. Losses of different kinds cannot be compared."
    return section(title, about, f'<div class="charts">{"".join(drawn)}</div>')


def _has(line: dict[str, Any], kind: str, of: str) -> bool:
    return line.get("kind") == kind and isinstance(line.get(of), int | float) and "step" in line


def _robustness(compared: Sequence[Compared]) -> str:
    robust = [each.robust for each in compared if each.robust is not None]
    if len(robust) < len(compared):
        return absent("Robustness", "some of the runs take inputs that are no images.")
    note = clean_note(robust)
    return section("Robustness", f"{note[:1].upper()}{note[1:]}.", _inside(draw_robustness(robust), "robustness"))


def _inside(drawn: Any, alt: str) -> str:
    return figure(svg_source(render(drawn, "svg")), alt, "")


def _small(text: str) -> str:
    return f'<p class="faint">{escape(text)}</p>'
