"""The plan is whole: its recipes exist, its options are options, claims have their seeds, names do not collide."""

import pytest

import torchcaps.lab.recipes as recipes
from reproduction import PLAN, Item, Job, Point, in_order
from reproduction.studies import MEASURES
from torchcaps.models import count_parameters, create
from torchcaps.routing import ROUTINGS

ITEMS = [(point, item) for point in PLAN for item in point.items]


def test_there_are_nine_points_that_two_cores_do_in_seven_hours():
    assert len(PLAN) == 9
    assert len({point.name for point in PLAN}) == 9
    minutes = sum(item.minutes * len(item.seeds) for _, item in ITEMS)
    minutes += sum(study.minutes for point in PLAN for study in point.studies)
    assert 300 < minutes / 2 < 420


def test_options_of_every_item_are_options_of_its_recipe():
    tried = set()
    for _, item in ITEMS:
        for scale in ("laptop", "smoke"):
            options = item.overrides(scale)
            if not options or (item.recipe, scale, options) in tried:
                assert item.recipe in recipes.RECIPES
                continue
            tried.add((item.recipe, scale, options))
            changed = recipes.configure(item.recipe, scale, options)
            assert changed != recipes.get(item.recipe, scale) or "dynamic" in options, f"{item.name} changes nothing"


def test_both_sides_of_a_claim_have_three_seeds():
    for point in PLAN:
        for claim in point.claims:
            if claim.error_at_most is None:
                assert len(point.item(claim.better).seeds) >= 3
                assert len(point.item(claim.worse).seeds) >= 3


def test_different_trainings_have_different_names():
    seen: dict[str, tuple] = {}
    for point in PLAN:
        for job in point.jobs("laptop"):
            what = (job.item.recipe, job.arguments)
            assert seen.setdefault(job.name, what) == what
            assert len(job.name) < 200


def test_studies_are_of_kinds_that_exist_and_have_names_of_their_own():
    names = [study.name for point in PLAN for study in point.studies]
    assert len(set(names)) == len(names)
    assert {study.kind for point in PLAN for study in point.studies} == set(MEASURES)


def test_first_seeds_come_first_and_every_point_early():
    jobs = in_order(PLAN, "laptop")
    assert len({job.name for job in jobs}) == len(jobs)
    assert {job.point for job in jobs[: len(PLAN)]} == {point.name for point in PLAN}
    first = [job.seed for job in jobs if job.item.minutes < 30]
    assert first == sorted(first)
    assert all(job.item.minutes < 30 for job in jobs[: len({name for point in PLAN for name in point.items})])


def test_a_claim_about_nothing_is_refused():
    from reproduction import PaperClaim

    with pytest.raises(ValueError, match="no item 'b'; there are a"):
        Point("p", "t", "", (Item("a", "quickstart", 1.0),), (PaperClaim("text", "source", "a", "b"),))


def test_the_stage_has_the_same_parameters_for_all_routings():
    for name in ("comparison", "comparison_smallnorb"):
        counts = [count_parameters(create(name, routing=routing)) for routing in ROUTINGS]
        assert len(counts) == len(ROUTINGS)
        assert max(counts) / min(counts) < 1.02


@pytest.mark.parametrize(
    ("capsules", "cnn"),
    [("heinsen2019/smallnorb", "heinsen2019/smallnorb-cnn"), ("sabour2017/mnist", "sabour2017/mnist-cnn")],
)
def test_opponents_are_as_large(capsules: str, cnn: str):
    large, other = (count_parameters(recipes.build_model(recipes.get(name, "laptop"))) for name in (capsules, cnn))
    assert abs(large / other - 1) < 0.04


def test_a_job_says_what_train_would_be_told():
    job = Job("p", Item("a", "comparison/toys", 1.0, ("--model.routing", "em"), ("--epochs", "2")), 1, "laptop")
    assert job.arguments == ("--model.routing", "em", "--epochs", "2", "--seed", "1")
    assert job.name == "comparison-toys-laptop-model.routing-em-epochs-2-seed1"
    assert Job("p", job.item, 1, "smoke").name == "comparison-toys-smoke-model.routing-em-seed1"
