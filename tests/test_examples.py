"""Every program of examples/ runs, is short, and is in the table; every tutorial imports only what is there."""

import ast
import importlib
import re
import runpy
import sys
from pathlib import Path

import matplotlib
import pytest

ROOT = Path(__file__).parents[1]
PROGRAMS = sorted((ROOT / "examples").glob("*.py"))
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.py"))
every_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
every_tutorial = pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)


def test_there_are_programs_and_seven_tutorials() -> None:
    assert len(PROGRAMS) >= 6
    assert [path.stem[:2] for path in TUTORIALS] == ["1-", "2-", "3-", "4-", "5-", "6-", "7-"]


# What Lightning's own code is warned of: a class of torch's that it uses, and loaders without worker processes.
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning", "ignore:.*does not have many workers.*:UserWarning")
@every_program
def test_a_program_runs_at_a_small_size(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(program), "--small"])
    with matplotlib.rc_context({"backend": "agg"}):
        runpy.run_path(str(program), run_name="__main__")
    assert capsys.readouterr().out, f"{program.name} says nothing"


@every_program
def test_a_program_is_short_and_in_the_table(program: Path) -> None:
    text = program.read_text()
    assert len(text.splitlines()) < 80, f"{program.name} has {len(text.splitlines())} lines"
    assert ast.get_docstring(ast.parse(text)), f"{program.name} does not say what it is"
    assert f"]({program.name})" in (ROOT / "examples" / "README.md").read_text()


@every_tutorial
def test_a_tutorial_imports_what_is_there(tutorial: Path) -> None:
    """The site runs the tutorials; here a renamed module is noticed at once."""
    for node in ast.walk(ast.parse(tutorial.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torchcaps"):
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                assert hasattr(module, alias.name), f"{tutorial.name}: {node.module} has no {alias.name}"


@every_tutorial
def test_a_tutorial_opens_with_what_one_will_see(tutorial: Path) -> None:
    text = tutorial.read_text()
    first = text.split("# %%")[1]
    assert re.search(r"^# # .+\n#\n# You ", first, re.MULTILINE), (
        f"{tutorial.name} does not say what the reader will see"
    )
    assert "minute" in first or "seconds" in first, f"{tutorial.name} does not say how long it takes"


def test_the_tutorial_on_sentences_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the language model or the sentences, the site is built all the same."""

    def find_none(name: str) -> None:
        raise ValueError(f"no language model {name}")

    monkeypatch.setattr("torchcaps.lab.text.load_encoder", find_none)
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path))
    runpy.run_path(str(ROOT / "docs" / "tutorials" / "5-sentences.py"))
    said = capsys.readouterr().out
    assert "left out" in said
    assert "no language model minilm" in said
    assert "torchcaps data fetch" in said
