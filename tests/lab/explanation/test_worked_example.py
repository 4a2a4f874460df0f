import json
import os
import subprocess
import sys
from io import BytesIO, TextIOWrapper
from math import isclose

import pytest
import torch

from torchcaps.lab.explanation import worked_example
from torchcaps.lab.explanation.parts_and_wholes import (
    AGREEING,
    SCENES,
    WHOLES,
    PartsScene,
    Placement,
    Told,
    part_to_whole,
    placement_of,
    pose_of,
    rank_wholes,
    tell,
)

every_scene = pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.title)


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> tuple[subprocess.CompletedProcess[str], dict]:
    """One run of the command, with what it printed and the numbers that it wrote."""
    out = tmp_path_factory.mktemp("example") / "new" / "directory"
    command = [sys.executable, "-m", "torchcaps.lab.explanation.worked_example", "--out", str(out)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "COLUMNS": "80"})
    assert run.returncode == 0, run.stderr
    picture = (out / worked_example.PICTURE).read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert 20_000 < len(picture) < 300_000
    return run, json.loads((out / worked_example.NUMBERS).read_text())


def test_a_pose_is_its_placement():
    place = Placement(1.25, -2.5, -130.0)
    back = placement_of(pose_of(place))
    assert isclose(back.x, place.x, abs_tol=1e-5)
    assert isclose(back.y, place.y, abs_tol=1e-5)
    assert isclose(back.angle, place.angle, abs_tol=1e-3)
    assert pose_of(place).sum().abs() < 1e-6


def test_the_parts_of_an_upright_whole_vote_for_where_it_is():
    whole = Placement(0.7, -0.4)
    for name, parts in WHOLES.items():
        for kind, inner in parts.items():
            vote = pose_of(whole.holding(inner)) @ part_to_whole(inner)
            torch.testing.assert_close(vote, pose_of(whole), msg=f"{kind} of a {name}")


@every_scene
def test_couplings_sum_to_one(scene: PartsScene):
    for kind, outcome in zip(AGREEING, tell(scene).outcomes, strict=True):
        coupling = torch.tensor(outcome.couplings)
        assert coupling.shape == (3 if kind.iterates else 1, len(scene.parts), len(WHOLES))
        torch.testing.assert_close(coupling.sum(-1), torch.ones(coupling.shape[:-1]))


@every_scene
def test_what_is_there_is_found(scene: PartsScene):
    for outcome in tell(scene).outcomes:
        assert rank_wholes(outcome, len(scene.wholes)) == list(scene.wholes), outcome.routing


@every_scene
def test_parts_end_up_with_their_whole(scene: PartsScene):
    routed = [outcome for outcome in tell(scene).outcomes if outcome.couples]
    assert len(routed) == sum(kind.couples for kind in AGREEING)
    for outcome in routed:
        for part, shares in zip(scene.parts, outcome.couplings[-1], strict=True):
            if part.whole is not None:
                assert list(WHOLES)[shares.index(max(shares))] == part.whole, outcome.routing


def test_presences_tell_what_is_there_from_what_is_not():
    for told in map(tell, SCENES):
        for outcome in told.outcomes:
            if outcome.routing in ("EM", "Heinsen"):
                for whole, presence in outcome.says.items():
                    assert (presence > 0.5) == (whole in told.scene.wholes), outcome.routing


def test_the_numbers_are_those_of_the_routings(written):
    _, numbers = written
    assert list(numbers["wholes"]) == list(WHOLES)
    for scene, expected in zip(numbers["scenes"], map(tell, SCENES), strict=True):
        assert scene["title"] == expected.scene.title
        assert [part["kind"] for part in scene["parts"]] == [part.kind for part in expected.scene.parts]
        assert len(scene["votes"]) == len(expected.votes)
        assert [outcome["routing"] for outcome in scene["routings"]] == [kind.title for kind in AGREEING]
        for got, outcome in zip(scene["routings"], expected.outcomes, strict=True):
            torch.testing.assert_close(torch.tensor(got["couplings"]), torch.tensor(outcome.couplings))


def test_the_story_is_plain_text_without_a_terminal(written):
    run, _ = written
    assert "\x1b" not in run.stdout
    assert max(map(len, run.stdout.splitlines()[:-1])) <= 80
    for scene in SCENES:
        assert scene.title in run.stdout
    assert run.stderr == ""


def test_a_log_without_unicode_still_gets_the_story(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchcaps.lab.explanation.worked_example_figure", None)  # drawn elsewhere
    log = TextIOWrapper(BytesIO(), encoding="ascii", write_through=True)
    monkeypatch.setattr(sys, "stdout", log)
    worked_example.main(tmp_path)
    assert b"Scene 3" in log.buffer.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


def test_an_unwritable_directory_is_an_error_that_names_it(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(SystemExit, match=f"^error: cannot write to {blocked / 'out'}: "):
        worked_example.main(blocked / "out")


def test_without_matplotlib_there_are_the_numbers_and_a_hint(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torchcaps.lab.explanation.worked_example_figure", None)
    worked_example.main(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [worked_example.NUMBERS]
    assert "torchcaps[lab]" in capsys.readouterr().out


def test_a_stray_part_is_coupled_yet_persuades_nobody():
    told: Told = tell(SCENES[0])
    stray = next(row for row, part in enumerate(told.scene.parts) if part.whole is None)
    em = next(outcome for outcome in told.outcomes if outcome.routing == "EM")
    shares = em.couplings[-1][stray]
    taker = list(WHOLES)[shares.index(max(shares))]
    assert taker not in told.scene.wholes
    assert em.says[taker] < 0.2
