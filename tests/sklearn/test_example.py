"""The example, at small size."""

from tests.support import ROOT, script


def test_it_prints_both_accuracies(capsys):
    found = script("examples/sklearn_classifier").main(["--small"])
    assert list(found) == ["support vector machine", "capsule network"]
    assert found["support vector machine"] > 0.6
    assert found["capsule network"] > 0.05
    said = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in said] == list(found)
    assert len((ROOT / "examples/sklearn_classifier.py").read_text().splitlines()) < 80
