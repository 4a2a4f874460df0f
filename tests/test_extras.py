"""Without an extra, every command says in one line which one to install."""

import subprocess
import sys
from pathlib import Path

from torchcaps.cli import COMMANDS
from torchcaps.extras import EXTRAS

LAB = [module for module, extra in EXTRAS.items() if extra == "lab"]
ADVICE = "which is not installed; run: pip install 'torchcaps[lab]'"
NEEDING = [
    ("explain", "shipped", "--only", "reconstruction"),
    ("predict", "shipped", "a.png"),
    ("data", "fetch", "mnist", "--data-dir", "."),
]


def run_without(modules: list[str], commands: list[tuple[str, ...]], folder: Path, more: str = "") -> list[list[str]]:
    """The lines that each command says on stderr, in one process that lacks modules."""
    code = (
        "import sys; sys.modules.update(dict.fromkeys(sys.argv[1].split(',')))\n"
        "from torchcaps.cli import main\n"
        "for line in sys.argv[2:]:\n"
        "    assert main(line.split('|')) == 2\n"
        "    print('--', file=sys.stderr)\n"
    )
    command = [sys.executable, "-c", code + more, ",".join(modules), *("|".join(words) for words in commands)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    return [said.splitlines() for said in done.stderr.removesuffix("--\n").split("--\n")]


def test_a_missing_extra_is_named_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    said = run_without([module for module in LAB if module not in ("tyro", "rich")], NEEDING, tmp_path)
    assert len(said) == 3
    for lines in said:
        assert len(lines) == 1
        assert lines[0].endswith(ADVICE)


def test_estimators_without_scikit_learn_or_the_lab(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules[sys.argv[1]] = None\n"
        "try: import torchcaps.sklearn\n"
        "except ImportError as error: print(error)\n"
    )
    for module, package, extra in (("sklearn", "scikit-learn", "sklearn"), ("tyro", "tyro", "lab")):
        done = subprocess.run([sys.executable, "-c", code, module], capture_output=True, text=True, timeout=120)
        said = f"torchcaps.sklearn needs {package}, which is not installed; run: pip install 'torchcaps[{extra}]'"
        assert done.stdout.strip() == said, done.stderr


def test_every_command_needs_the_lab(tmp_path: Path) -> None:
    more = (
        "import torchcaps\ntry: torchcaps.load('shipped')\nexcept ImportError as error: print(error, file=sys.stderr)\n"
    )
    *said, (loaded,) = run_without(LAB, [(name,) for name in COMMANDS], tmp_path, more)
    assert len(said) == len(COMMANDS)
    for name, (line,) in zip(COMMANDS, said, strict=True):
        assert line.startswith(f"torchcaps: torchcaps {name} needs ")
        assert line.endswith(ADVICE)
    assert loaded.startswith("torchcaps.load needs ")
