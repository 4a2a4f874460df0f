"""What a person sees while training goes on: a bar on a terminal, plain lines now and then elsewhere."""

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

SECONDS_BETWEEN_LINES = 10.0


class Reporter:
    """Says nothing: for processes that are not the main one, and for programs."""

    def start(self, total: int, step: int, about: str, unit: str = "images") -> None: ...

    def update(self, step: int, loss: float, accuracy: float, speed: float, epoch: float) -> None: ...

    def say(self, text: str) -> None: ...

    def warn(self, text: str) -> None: ...

    def stop(self) -> None: ...


class Lines(Reporter):
    """Lines without escape codes, for logs."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.total, self.first, self.began, self.said = 1, 0, 0.0, 0.0
        self.unit = "images"

    def start(self, total: int, step: int, about: str, unit: str = "images") -> None:
        self.unit = unit
        self.total, self.first, self.began, self.said = total, step, time.monotonic(), time.monotonic()
        self.say(about)

    def update(self, step: int, loss: float, accuracy: float, speed: float, epoch: float) -> None:
        now = time.monotonic()
        if now - self.said < SECONDS_BETWEEN_LINES:
            return
        self.said = now
        left = (now - self.began) / max(1, step - self.first) * (self.total - step)
        self.say(
            f"step {step:,} of {self.total:,}, epoch {epoch:.1f}: loss {loss:.4f}, accuracy {accuracy:.2%}, "
            f"{speed:,.0f} {self.unit}/s, {duration(left)} left"
        )

    def say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True, markup=False, highlight=False)

    def warn(self, text: str) -> None:
        self.say(f"warning: {text}")


class Bar(Lines):
    """A bar that moves, with what has been said above it."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.bar = Progress(
            TextColumn("epoch {task.fields[epoch]:.1f}"),
            BarColumn(bar_width=None),
            TextColumn("loss {task.fields[loss]:.4f}  accuracy {task.fields[accuracy]:.1%}"),
            TextColumn("{task.fields[speed]:,.0f} {task.fields[unit]}/s"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            refresh_per_second=4,
            transient=True,
        )
        self.task: TaskID | None = None

    def start(self, total: int, step: int, about: str, unit: str = "images") -> None:
        self.say(about)
        fields = {"loss": 0.0, "accuracy": 0.0, "speed": 0.0, "epoch": 0.0, "unit": unit}
        self.task = self.bar.add_task("", total=total, completed=step, **fields)
        self.bar.start()

    def update(self, step: int, loss: float, accuracy: float, speed: float, epoch: float) -> None:
        if self.task is not None:
            self.bar.update(self.task, completed=step, loss=loss, accuracy=accuracy, speed=speed, epoch=epoch)

    def stop(self) -> None:
        self.bar.stop()


def reporter(console: Console | None) -> Reporter:
    """What fits where the words go."""
    if console is None:
        return Reporter()
    return Bar(console) if console.is_terminal else Lines(console)


def duration(seconds: float | int) -> str:
    """A time in a few letters.

    >>> duration(5), duration(75), duration(7300)
    ('5 s', '1 min 15 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
