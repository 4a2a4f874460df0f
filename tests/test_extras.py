"""Without an extra, every command says in one line which one to install."""

import subprocess
import sys
from pathlib import Path

import pytest

from torchcaps.cli import COMMANDS
from torchcaps.extras import EXTRAS

LAB = [module for module, extra in EXTRAS.items() if extra == "lab"]
HIDE = "import sys; sys.modules.update(dict.fromkeys(sys.argv[1].split(','))); from torchcaps.cli import main; "
RUN = HIDE + "sys.exit(main(sys.argv[2:]))"


def run_without(modules: list[str], *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", RUN, ",".join(modules), *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=120)


@pytest.mark.parametrize(
    "words",
    [
        ("explain", "shipped", "--only", "reconstruction"),
        ("predict", "shipped", "a.png"),
        ("data", "fetch", "mnist", "--data-dir", "."),
        ("models",),
    ],
)
def test_a_missing_extra_is_named_in_one_line(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    hidden = [module for module in LAB if module not in ("tyro", "rich")] if words[0] != "models" else LAB
    done = run_without(hidden, *words, folder=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert "which is not installed; run: pip install 'torchcaps[lab]'" in done.stderr
    assert done.stdout == ""


def test_every_command_needs_the_lab(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(sys.argv[1].split(',')))\n"
        "from torchcaps.cli import main\n"
        "print([main([name]) for name in sys.argv[2:]])\n"
        "import torchcaps\n"
        "try: torchcaps.load('shipped')\n"
        "except ImportError as error: print(error)\n"
    )
    command = [sys.executable, "-c", code, ",".join(LAB), *COMMANDS]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    said = [f"torchcaps: torchcaps {name} needs " for name in COMMANDS]
    lines = done.stderr.splitlines()
    assert len(lines) == len(said), done.stderr
    for line, start in zip(lines, said, strict=True):
        assert line.startswith(start)
        assert line.endswith("which is not installed; run: pip install 'torchcaps[lab]'")
    results, loaded = done.stdout.splitlines()
    assert results == str([2] * len(COMMANDS))
    assert loaded.startswith("torchcaps.load needs ")
