"""What only capsules can show: what they say the image looked like, what their numbers do, what was routed where."""

import json
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from torchcaps.lab.evaluation import Evaluation
from torchcaps.lab.loaders import Loader
from torchcaps.lab.reports.page import absent, add_caption, heat, picture, pixels_wide, section, stretch
from torchcaps.lab.tracing.networks import require_decoder
from torchcaps.models import CapsuleNet, Model

if TYPE_CHECKING:
    from torchcaps.lab.explanation.couplings import Couplings  # draws, and so is slow to import

FEW, MANY = 6, 16
ENLARGED = 4  # times, for what is laid over an image
OVERLAY, DECODED = 80, 112  # pixels high on the page


def capsule_sections(model: Model, loader: Loader, found: Evaluation, numbers: Tensor) -> list[str]:
    """The sections, each with a line in its place where it cannot be; ``numbers`` are those of the evaluated examples
    in the loader."""
    parts: list[tuple[str, Callable[[CapsuleNet, Loader, Evaluation, Tensor], str]]] = [
        ("Reconstructions", reconstructions),
        ("What the dimensions of a capsule do", perturbations),
        ("Where the parts went", couplings),
    ]
    if not isinstance(model, CapsuleNet):
        return [absent(", ".join(title.lower() for title, _ in parts).capitalize(), "this model has no capsules.")]
    if len(loader.batch(numbers[:1]).inputs[0].shape) != 4:
        return [absent("Pictures of capsules", "the inputs are no images.")]
    sections = []
    for title, make in parts:
        try:
            sections.append(make(model, loader, found, numbers))
        except ImportError as error:
            sections.append(absent(title, f"{error}; run: pip install 'torchcaps[lab]'"))
        except ValueError as error:  # explain's way to say that a network has not what it takes
            sections.append(absent(title, f"{error}."))
    return sections


def one_of_each(found: Evaluation, most: int, *, right: bool = True) -> list[int]:
    """Places of examples, one of each class as far as they go, then further ones; only right answers if there are."""
    truth = found.truth
    among = found.right if right and bool(found.right.any()) else torch.ones_like(found.right)
    chosen: list[int] = []
    for k in range(len(found.classes)):
        first = (among & truth[:, k]).nonzero()[:, 0].tolist()
        chosen += [place for place in first if place not in chosen][:1]
    return chosen[:most]


def reconstructions(net: CapsuleNet, loader: Loader, found: Evaluation, numbers: Tensor) -> str:
    """Inputs, and what the decoder makes of the decided class beside them; with several labels, of each."""
    title = "Reconstructions"
    require_decoder(net)
    right, wrong = one_of_each(found, MANY - 4), (~found.right).nonzero()[:4, 0].tolist()
    chosen = torch.tensor(right + wrong)
    batch = loader.batch(numbers[chosen])
    count = int(found.decided[chosen].sum(-1).max().clamp_min(1))
    decoded_classes = found.logits[chosen].topk(count).indices
    with torch.inference_mode():
        decoded = net(*batch.inputs, decode=decoded_classes).reconstruction
    assert decoded is not None
    figures = []
    for row, place in enumerate(chosen.tolist()):
        images = [stretch(batch.inputs[0][row]), *decoded[row]]
        shown = "".join(picture(image, "input" if first == 0 else "decoded", 72) for first, image in enumerate(images))
        names = " + ".join(found.classes[k] for k in decoded_classes[row].tolist())
        note = f"decoded from <b>{escape(names)}</b>"
        if not bool(found.right[place]):
            truth = " + ".join(found.classes[k] for k in found.truth[place].nonzero()[:, 0].tolist())
            note += f",<br>label: {escape(truth)}"
        figures.append(add_caption(f'<div class="strip">{shown}</div>', note))
    about = "Left the input, right what the decoder makes of the capsule of the class that was decided on" + (
        "; the last ones are wrong answers." if wrong else "."
    )
    return section(title, about, f'<div class="pictures">{"".join(figures)}</div>')


def perturbations(net: CapsuleNet, loader: Loader, found: Evaluation, numbers: Tensor) -> str:
    """Some capsules, with a slider for each number of their poses."""
    from torchcaps.lab.explanation.perturbation import OFFSETS, perturb

    title = "What the dimensions of a capsule do"
    require_decoder(net)
    chosen = torch.tensor(one_of_each(found, FEW - 2))
    inputs = loader.batch(numbers[chosen]).inputs[0]
    decoded_classes = found.truth[chosen].long().argmax(-1)
    record = perturb(net, inputs, decoded_classes, found.classes)
    inputs = [stretch(image) for image in inputs]
    cards = [
        _capsule(inputs[row], record.decoded[row], record.offset.tolist(), found.classes[k])
        for row, k in enumerate(decoded_classes.tolist())
    ]
    about = (
        f"Each slider adds {OFFSETS[0]:+.2f} to {OFFSETS[-1]:+.2f} to one number of the capsule's pose, and the "
        "decoder shows what comes of it; in the middle is the capsule as it is. One number moves at a time."
    ).replace("-", "−")
    return section(title, about, *cards)


def _capsule(image: Tensor, decoded: np.ndarray, offsets: list[float], name: str) -> str:
    """The input, what the decoder makes of its capsule, and a slider for each number of the pose. All that sliders can
    show is in one sheet, a row for each number and a column for each offset."""
    rows, columns = min(decoded.shape[0], MANY), decoded.shape[1]
    frames = torch.from_numpy(np.ascontiguousarray(decoded[:rows])).movedim(-1, 2)  # d s channel row column
    sheet = torch.cat([torch.cat(list(line), dim=2) for line in frames], dim=1)
    wide = pixels_wide(frames[0, 0], DECODED)
    middle = min(range(columns), key=lambda place: abs(offsets[place]))
    words = [f"{offset:+.2f}".replace("-", "−") if place != middle else "0" for place, offset in enumerate(offsets)]
    sliders = "".join(
        f'<label><span>{number + 1}</span><input type="range" min="0" max="{columns - 1}" value="{middle}" '
        f'aria-label="number {number + 1} of the pose"><output>0</output></label>'
        for number in range(rows)
    )
    window = (
        f'<div class="window" style="width:{wide}px;height:{DECODED}px">'
        f"{picture(sheet, 'decoded', rows * DECODED)}</div>"
    )
    return (
        f"<h3>A capsule of “{escape(name)}”</h3>"
        f'<div class="capsule" data-offsets="{escape(json.dumps(words))}" data-size="{wide} {DECODED}" '
        f'data-middle="{middle}">{add_caption(picture(image, "input", DECODED), "input")}'
        f'{add_caption(window, "decoded")}<div class="sliders">{sliders}</div></div>'
    )


def couplings(net: CapsuleNet, loader: Loader, found: Evaluation, numbers: Tensor) -> str:
    """The input, and over it what part of each place goes to a class."""
    from torchcaps.lab.explanation.captions import caption_coverage
    from torchcaps.lab.explanation.couplings import measure_couplings

    chosen = torch.tensor(one_of_each(found, FEW))
    inputs = loader.batch(numbers[chosen]).inputs[0]
    record = measure_couplings(net, inputs, found.label[chosen], found.classes)
    iterations = record.share.shape[1]
    figures = []
    for row, place in enumerate(chosen.tolist()):
        ranked = found.logits[place].argsort(descending=True).tolist()
        if found.multi_label:
            count = max(1, int(found.decided[place].sum()))
            wanted = [(k, iterations - 1) for k in ranked[:count]]
        else:
            wanted = [(ranked[0], t) for t in range(iterations)] + [(ranked[1], iterations - 1)]
        figures.append(_overlaid(record, row, wanted))
    what = "is coupled to" if record.couples else "agrees on"
    about = (
        f"How much of the primary capsules at each place {what} a class, laid over the input: dark for the least of "
    )
    about += "a line, yellow for the most, and faint where no capsule is active. "
    about += "Each class that was decided on." if found.multi_label else "Iteration by iteration, then the runner-up."
    about += f" {caption_coverage(record)}"
    return section(title_of_couplings(record), about, f'<div class="charts">{"".join(figures)}</div>')


def title_of_couplings(record: "Couplings") -> str:
    names = " and ".join(dict.fromkeys(record.routings))
    return f"Where the parts went: {names} routing" if record.couples else "Where the parts agree"


def _overlaid(record: Any, row: int, wanted: list[tuple[int, int]]) -> str:
    image = torch.from_numpy(np.ascontiguousarray(record.image[row])).movedim(-1, 0)
    large = image.repeat_interleave(ENLARGED, 1).repeat_interleave(ENLARGED, 2)
    low, high = (float(end([end(record.share[row, t, :, :, k]) for k, t in wanted])) for end in (np.min, np.max))
    there = record.presence[row] / max(float(record.presence[row].max()), 1e-12)
    figures = [add_caption(picture(large, "input", OVERLAY), "input")]
    for k, t in wanted:
        share = _on_image((record.share[row, t, :, :, k] - low) / max(high - low, 1e-12), record.extent, large)
        weight = _on_image(0.25 + 0.6 * there, record.extent, large)
        laid = 0.55 * large * (1 - weight) + heat(share) * weight
        name, least, most = record.classes[k], *(float(end(record.share[row, t, :, :, k])) for end in (np.min, np.max))
        figures.append(
            add_caption(picture(laid, f"{name}, iteration {t + 1}", OVERLAY), _overlay_words(name, t, least, most))
        )
    return f'<div class="pictures">{"".join(figures)}</div>'


def _overlay_words(name: str, iteration: int, least: float, most: float) -> str:
    return f"<b>{escape(name)}</b>, iteration {iteration + 1}<br>{100 * least:.1f}–{100 * most:.1f} %"


def _on_image(values: np.ndarray, extent: tuple[float, float, float, float], large: Tensor) -> Tensor:
    """Values of a grid at every pixel of the enlarged image; zero where the grid does not reach."""
    left, right, bottom, top = extent
    rows, columns = values.shape

    def places(size: int, start: float, end: float, count: int) -> Tensor:
        pixel = (torch.arange(size) + 0.5) / ENLARGED - 0.5
        return ((pixel - start) / (end - start) * count).floor().long()

    down, across = places(large.shape[1], top, bottom, rows), places(large.shape[2], left, right, columns)
    inside = ((down >= 0) & (down < rows))[:, None] & ((across >= 0) & (across < columns))
    grid = torch.from_numpy(np.ascontiguousarray(values)).float()
    return torch.where(inside, grid[down.clamp(0, rows - 1)][:, across.clamp(0, columns - 1)], 0.0)
