"""The command ``torchcaps``. A subcommand is a dataclass with ``run() -> int``, and a line of ``COMMANDS``."""

import importlib
import io
import sys
from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from torchcaps.extras import explain_missing
from torchcaps.terminal import printable


@runtime_checkable
class Command(Protocol):
    """What every subcommand is: options as fields, and an exit code from ``run``."""

    def run(self) -> int: ...


class Place(NamedTuple):
    """Where a subcommand is, so that only the one that was asked for is imported."""

    module: str
    name: str
    about: str


COMMANDS: dict[str, Place] = {
    "train": Place("torchcaps.cli.train", "Train", "train a recipe, or go on with one"),
    "list": Place("torchcaps.cli.list_recipes", "ListRecipes", "the papers' experiments: targets and costs"),
    "data": Place("torchcaps.cli.data", "DataCommand", "datasets: list, fetch, show, check"),
    "check": Place("torchcaps.cli.check", "RunCheck", "whether a run folder is whole, and what it can be used for"),
    "doctor": Place("torchcaps.cli.doctor", "Doctor", "why a run does not learn, and what to do about it"),
    "evaluate": Place("torchcaps.cli.evaluate", "Evaluate", "how good a run is: accuracy, classes, ensembles"),
    "predict": Place("torchcaps.cli.predict", "Predict", "what a run says of your own images"),
    "report": Place("torchcaps.cli.report", "Report", "paper against ours, from the records of runs"),
    "explain": Place("torchcaps.cli.explain", "Explain", "see inside a run: figures and the numbers behind them"),
    "compare": Place("torchcaps.cli.compare", "Compare", "runs side by side, in one page"),
    "export": Place("torchcaps.cli.export", "Export", "a run's model as an ONNX file, or for torch.export"),
    "demo": Place("torchcaps.cli.demo", "Demo", "draw, and see what a network makes of it, in the browser"),
    "models": Place("torchcaps.cli.models", "Models", "the models of the papers, with their sizes"),
}

USAGE = """usage: torchcaps COMMAND [options]   (torchcaps COMMAND --help says more)
  --debug shows tracebacks; --import MODULE imports a module of yours, whose routings runs and files may then name"""


def find(name: str) -> type[Command]:
    """The class of a subcommand."""
    place = COMMANDS[name]
    return getattr(importlib.import_module(place.module), place.name)


def parse_command(name: str, arguments: Sequence[str]) -> Command:
    """A subcommand with its options; one that takes words which tyro cannot know reads them in its own ``parse``."""
    import tyro

    command = find(name)
    parse = getattr(command, "parse", None)
    return tyro.cli(command, prog=f"torchcaps {name}", args=arguments) if parse is None else parse(arguments)


def import_modules(words: Sequence[str]) -> list[str]:
    """Import what the words name, ``--import MODULE`` and the module of ``--model.routing MODULE:CLASS``, from the
    current directory too; the words but for ``--import``."""
    rest: list[str] = []
    modules: list[str] = []
    waiting = ""
    for word in words:
        option, equals, value = (waiting, "=", word) if waiting else word.partition("=")
        if option != "--import":
            rest.append(word)
        if option in ("--import", "--model.routing") and not equals:
            waiting = option
            continue
        waiting = ""
        if option == "--import" or (option == "--model.routing" and ":" in value):
            modules.append(value.partition(":")[0])
    if waiting == "--import":
        raise ValueError("--import needs the name of a module, as in --import my_package.my_module")
    if modules and "" not in sys.path:
        sys.path.append("")  # last, so that nothing here takes the place of an installed package
    for module in modules:
        try:
            importlib.import_module(module)
        except (ImportError, ValueError) as error:
            raise ValueError(f"cannot import {module!r}: {error}; give a module that Python finds from here") from error
    return rest


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; the exit code: 0 all is well, 1 a check failed, 2 the input was wrong."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that knows no × shows a question mark, not an error
            stream.reconfigure(errors="replace")
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    given = [word for word in given if word != "--debug"]
    if not given or given[0] in ("-h", "--help"):
        print(USAGE)
        for name, place in COMMANDS.items():
            print(f"  {name:10} {place.about}")
        return 0 if given else 2
    if given[0] not in COMMANDS:
        print(f"torchcaps: no command {given[0]!r}; there are: {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    try:
        return parse_command(given[0], import_modules(given[1:])).run()
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        print("torchcaps: stopped", file=sys.stderr)
        return 130
    except ImportError as error:
        missing = explain_missing(error, f"torchcaps {given[0]}")
        if missing is None or debug:
            raise
        print(f"torchcaps: {missing}", file=sys.stderr)
        return 2
    # ValueError is how the library speaks to its users (DataError is one); the rest comes from the system.
    except (ValueError, OSError) as error:
        if debug:
            raise
        print(f"torchcaps: {printable(error)}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
