"""What CONTRIBUTING.md says of coverage is written from a measurement."""

from tests.support import ROOT, script

writer = script("scripts/write_coverage")


def summarize(lines: int, reached: int, branches: int, taken: int) -> dict[str, int]:
    return {"num_statements": lines, "covered_lines": reached, "num_branches": branches, "covered_branches": taken}


def test_the_total_the_parts_and_what_is_missed_are_told() -> None:
    files = {
        "torchcaps/layers.py": summarize(100, 100, 20, 20),
        "torchcaps/lab/loaders.py": summarize(40, 20, 10, 5),
        "torchcaps/cli/train.py": summarize(50, 48, 10, 9),
    }
    report = {"totals": summarize(190, 168, 40, 34), "files": {path: {"summary": files[path]} for path in files}}
    text = writer.describe(report, "abc1234")
    assert text.startswith("At commit abc1234, the tests reach 87.8 % of the lines and branches of the package:")
    assert "| library | 100 | 100.0 % |" in text
    assert "| laboratory | 40 | 50.0 % |" in text
    assert "| command line | 50 | 95.0 % |" in text
    assert text.count("`torchcaps/") == 1
    assert "| `torchcaps/lab/loaders.py` | 50 % |  |" in text
    page = writer.written((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), text)
    assert page.count(text) == 1
    assert writer.written(page, text) == page


def test_reasons_are_of_files_that_are_there() -> None:
    assert [path for path in writer.WHY if not (ROOT / path).is_file()] == []
