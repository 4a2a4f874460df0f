"""The benchmark of the training loop measures shares that can be right, and writes them down."""

import json

from benchmarks.training_cases import TrainingOutcome, lines, record, time_in_model
from torchcaps.lab.training.learner import Learner


def test_the_time_in_the_model_is_a_share() -> None:
    plain = Learner.learn
    found = time_in_model(steps=2, threads=1)
    assert Learner.learn is plain
    assert 0.0 < found.share <= 1.0
    assert found.details["loop_seconds"] > 0.0


def test_outcomes_are_written_down() -> None:
    found = [TrainingOutcome("a", "first", 0.95, 0.9, {}), TrainingOutcome("b", "second", 0.5, 0.8, {"x": 1.0})]
    assert lines(found) == [
        "a: 95.0 % (at least 90 %)",
        "b: 50.0 % (at least 80 %)  missed",
    ]
    written = json.loads(json.dumps(record(found, threads=2)))
    assert [case["reached"] for case in written["cases"]] == [True, False]
    assert written["cases"][1]["details"] == {"x": 1.0}
