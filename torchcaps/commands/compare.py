"""``torchcaps compare``: runs side by side in one page."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from torchcaps.explain.comparison import Standing
    from torchcaps.explain.robustness import Robustness

HEADER = ("run", "accuracy", "95 % interval", "examples", "parameters", "MACs", "ms an image", "memory", "calibration")


@dataclass(frozen=True)
class Compare:
    """Put runs side by side: accuracy, size, speed, memory, robustness and calibration, in one HTML page."""

    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN…")]
    """Run folders, checkpoints in them, or model files."""
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")] = Path("compare.html")
    """The page to write."""
    data: str = ""
    """Other data than each run's own: a name from `torchcaps data list`, folder:PATH or arrays:FILE.npz."""
    split: str = "test"
    """Which split of the data."""
    limit: int | None = None
    """Examples to count accuracy on, evenly over the split; all if left out."""
    robust_limit: int = 300
    """Examples for each distortion."""

    def run(self) -> int:
        if not self.runs:
            raise ValueError("name the runs to compare: torchcaps compare RUN RUN…")
        if min(self.robust_limit, 1 if self.limit is None else self.limit) < 1:
            raise ValueError("limits are at least one example")
        try:
            from torchcaps.explain.comparison import measure_all
        except ModuleNotFoundError as error:
            raise ValueError(f"figures need {error.name}; pip install 'torchcaps[plot]' brings it") from error
        from torchcaps.evaluate.fitting import feed_of
        from torchcaps.evaluate.subjects import open_subject
        from torchcaps.report.page import write
        from torchcaps.report.words import text_table

        standings, robust = [], []
        for path, name in zip(self.runs, names_of(self.runs), strict=True):
            found = open_subject(path)
            feed, data, remark = feed_of(found, self.data, self.split)
            if remark:
                print(remark)
            standing, distorted = measure_all(
                found.model, feed, found.loss, name=name, data=data, limit=self.limit, robust_limit=self.robust_limit
            )
            standings.append(standing)
            robust += [] if distorted is None else [distorted]
        print(text_table([row_of(each) for each in standings], HEADER, right=range(1, len(HEADER))))
        print(f"open {write(self.out, comparison_page(standings, robust))}")
        return 0


def names_of(paths: Sequence[str]) -> list[str]:
    """The runs' folders as names; whole paths where those would be the same."""
    short = [Path(path).resolve().name.removesuffix(".safetensors") for path in paths]
    return short if len(set(short)) == len(short) else [str(path) for path in paths]


def row_of(standing: "Standing") -> list[str]:
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


def comparison_page(standings: "Sequence[Standing]", robust: "Sequence[Robustness]") -> str:
    """The page, with its figures inside."""
    from torchcaps.explain.comparison import draw_accuracies, draw_calibration
    from torchcaps.explain.robustness import clean_note, draw_robustness
    from torchcaps.report.page import absent, page, section, table

    sets = sorted({each.data for each in standings})
    about = f"On {', '.join(sets)}." + ("" if len(sets) == 1 else " The runs have different data: compare with care.")
    first = standings[0]
    measured = (
        f"Time and memory: this machine, {first.threads} thread{'s' if first.threads > 1 else ''}, "
        f"{first.batch} images at a time; memory is what tensors hold at most, weights not counted. "
        "Multiply-adds are those of the papers' formulas."
    )
    parts = [
        f"<h1>{len(standings)} run{'s' if len(standings) > 1 else ''} compared</h1>",
        section("All figures", about, table(HEADER, map(row_of, standings), range(1, len(HEADER))), _small(measured)),
        section("Accuracy", "With its 95 % interval (Wilson).", _inside(draw_accuracies(standings), "accuracies")),
    ]
    if len(robust) == len(standings):
        figure = draw_robustness(robust)
        parts.append(section("Robustness", clean_note(robust).capitalize() + ".", _inside(figure, "robustness")))
    else:
        parts.append(absent("Robustness", "some of the runs take inputs that are no images."))
    about = "How often a network is right that is so sure; the error is the mean distance from the line."
    parts.append(section("Calibration", about, _inside(draw_calibration(standings), "calibration")))
    return page("Runs compared", parts)


def _inside(figure, alt: str) -> str:
    """A figure as a picture within the page."""
    import base64
    import io

    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=130)
    data = base64.b64encode(drawn.getvalue()).decode()
    return f'<img src="data:image/png;base64,{data}" alt="{escape(alt)}" style="max-width:100%">'


def _small(text: str) -> str:
    return f'<p class="faint">{escape(text)}</p>'
