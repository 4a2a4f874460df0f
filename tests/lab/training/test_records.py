"""Names of records: runs that differ have different ones, runs of one experiment differ in the seed alone."""

import pytest

from torchcaps.lab.training.records import label


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("--model.routing", "em"), ("--model.routing", "fm")),
        ((), ("--epochs", "2")),
        (("--optimizer.lr", "1e-3"), ("--optimizer.lr", "1e-4")),
        (("--data.limit", "1" * 90), ("--data.limit", "1" * 91)),
    ],
)
def test_other_changes_are_other_names(one: tuple[str, ...], other: tuple[str, ...]):
    assert label("laptop", 0, one) != label("laptop", 0, other)


def test_the_seed_is_said_once_and_equal_signs_do_not_matter():
    assert label("laptop", 3, ("--seed", "3", "--epochs=2")) == label("laptop", 3, ("--epochs", "2"))
    assert label("laptop", 3, ()) == "laptop-seed3"
    assert "/" not in label("laptop", 0, ("--data.train", "folder:a/b"))
    assert len(label("laptop", 0, ("--data.train", "x" * 500))) < 120
